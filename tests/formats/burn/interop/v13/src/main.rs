//! Files of Burn 0.13: recorders.

mod closed;
#[path = "../../common/files.rs"]
mod files;
#[path = "../../common/list.rs"]
mod list;
#[path = "../../common/net.rs"]
mod net;

use burn::record::{FullPrecisionSettings, JsonGzFileRecorder, PrettyJsonFileRecorder};

fn main() {
    type Full = FullPrecisionSettings;
    // Values are numbers here, and JSON has none for what is not finite: another model has only others.
    let mut all = files::recorder_files();
    all.retain(|file| !file.name.starts_with("net-full.json"));
    all.push(files::recorded_salted(
        "finite.json",
        false,
        1,
        PrettyJsonFileRecorder::<Full>::new(),
    ));
    all.push(files::recorded_salted("finite.json.gz", false, 1, JsonGzFileRecorder::<Full>::new()));
    files::main(all);
}
