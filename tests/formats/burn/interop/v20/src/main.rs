//! Files of Burn 0.20: recorders, burn-store, values of every type and optimizers.

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

fn main() {
    let mut all = files::recorder_files();
    all.push(packs::net_pack());
    all.extend(values::value_files());
    all.extend(optimizers::optimizer_files());
    files::main(all);
}
