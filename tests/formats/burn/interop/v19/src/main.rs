//! Files of Burn 0.19: recorders and burn-store.

#[path = "../../common/files.rs"]
mod files;
#[path = "../../common/list.rs"]
mod list;
#[path = "../../common/net.rs"]
mod net;
#[path = "../../common/packs.rs"]
mod packs;

fn main() {
    let mut all = files::recorder_files();
    all.push(packs::net_pack());
    files::main(all);
}
