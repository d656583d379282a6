//! Files of Burn 0.14: recorders.

#[path = "../../common/files.rs"]
mod files;
#[path = "../../common/list.rs"]
mod list;
#[path = "../../common/net.rs"]
mod net;

fn main() {
    files::main(files::recorder_files());
}
