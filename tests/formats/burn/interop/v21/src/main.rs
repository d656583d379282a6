//! Files of Burn 0.21: every recorder, burn-store, values of every type and optimizers.

mod bench;
#[path = "../../common/files.rs"]
mod files;
#[path = "../../common/flat.rs"]
mod flat;
#[path = "../../common/list.rs"]
mod list;
#[path = "../../common/net.rs"]
mod net;
#[path = "../../common/optimizers.rs"]
mod optimizers;
#[path = "../../common/packs.rs"]
mod packs;
#[path = "../../common/values.rs"]
mod values;

use burn_store::{BurnpackStore, HalfPrecisionAdapter, ModuleSnapshot, SafetensorsStore};
use files::{File, net_file};
use list::entries;

fn store_files() -> Vec<File> {
    vec![
        packs::net_pack(),
        net_file(
            "net-half.bpk",
            false,
            |path, net| {
                let mut store = BurnpackStore::from_file(path)
                    .with_to_adapter(HalfPrecisionAdapter::new())
                    .overwrite(true);
                net.save_into(&mut store).map_err(|e| e.to_string())
            },
            |path, net| {
                let store = BurnpackStore::from_file(path);
                let store = store.with_from_adapter(HalfPrecisionAdapter::new());
                packs::load_pack(store, path, net)
            },
        ),
        net_file(
            "net.safetensors",
            false,
            |path, net| {
                let mut store = SafetensorsStore::from_file(path).overwrite(true);
                net.save_into(&mut store).map_err(|e| e.to_string())
            },
            |path, mut net| {
                let mut store = SafetensorsStore::from_file(path);
                net.load_from(&mut store).map_err(|e| e.to_string())?;
                let mut found = entries(&net);
                found.iter_mut().for_each(|entry| entry.id = "-".to_string());
                Ok(found)
            },
        ),
    ]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "bench") {
        return bench::main(&arguments[1..]);
    }
    let mut all = files::recorder_files();
    all.extend(store_files());
    all.extend(values::value_files());
    all.extend(optimizers::optimizer_files());
    files::main(all);
}
