//! Times of saving and loading twenty linear layers, as Burn's own benchmark has them.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::record::{BinFileRecorder, FullPrecisionSettings, NamedMpkFileRecorder};
use burn::tensor::backend::Backend;
use burn_store::{BurnpackStore, ModuleSnapshot};
use std::path::{Path, PathBuf};
use std::time::Instant;

type B = burn::backend::NdArray<f32>;
type Full = FullPrecisionSettings;

#[derive(Module, Debug)]
struct Large<B: Backend> {
    layers: Vec<Linear<B>>,
}

impl<B: Backend> Large<B> {
    fn init(device: &B::Device) -> Self {
        let layer = |i| LinearConfig::new(if i == 0 { 1024 } else { 2048 }, 2048).init(device);
        Self { layers: (0..20).map(layer).collect() }
    }
}

/// A line of the kernel's account of this process, in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or("0 0");
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn save(format: &str, path: &Path, model: Large<B>) {
    match format {
        "mpk" => model.save_file(path, &NamedMpkFileRecorder::<Full>::new()).unwrap(),
        "bin" => model.save_file(path, &BinFileRecorder::<Full>::new()).unwrap(),
        "bpk" => model.save_into(&mut BurnpackStore::from_file(path).overwrite(true)).unwrap(),
        other => panic!("unknown format {other}"),
    }
}

fn load(format: &str, path: PathBuf, mut model: Large<B>) -> Large<B> {
    let device = Default::default();
    match format {
        "mpk" => model.load_file(path, &NamedMpkFileRecorder::<Full>::new(), &device).unwrap(),
        "bin" => model.load_file(path, &BinFileRecorder::<Full>::new(), &device).unwrap(),
        "bpk" => {
            model.load_from(&mut BurnpackStore::from_file(path)).unwrap();
            model
        }
        other => panic!("unknown format {other}"),
    }
}

/// `[bench] save|load mpk|bin|bpk PATH [--times N]`
pub fn main(arguments: &[String]) {
    let (action, format, path) = (&arguments[0], &arguments[1], PathBuf::from(&arguments[2]));
    let times = match &arguments[3..] {
        [option, count] if option == "--times" => count.parse().unwrap(),
        _ => 3,
    };
    let device = Default::default();
    let saved = (action == "save").then(|| Large::<B>::init(&device));
    if let Some(model) = &saved {
        // Parameters are made when they are first asked for.
        model.layers.iter().for_each(|layer| {
            layer.weight.val();
            layer.bias.as_ref().unwrap().val();
        });
    }
    // From here on the highest use is counted anew.
    std::fs::write("/proc/self/clear_refs", "5").ok();
    let before = status("VmRSS:");
    for _ in 0..times {
        let seconds = match &saved {
            Some(model) => {
                let model = model.clone();
                let start = Instant::now();
                save(format, &path, model);
                start.elapsed()
            }
            None => {
                let model = Large::<B>::init(&device);
                let start = Instant::now();
                let model = load(format, path.clone(), model);
                let seconds = start.elapsed();
                assert_eq!(model.layers[19].weight.dims(), [2048, 2048]);
                seconds
            }
        };
        println!("{action} {format} {:.6}", seconds.as_secs_f64());
    }
    println!("growth {}", status("VmHWM:").saturating_sub(before));
}
