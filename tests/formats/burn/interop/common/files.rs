// Writes the model's files with each recorder, and checks files of the same names.

use crate::list::{Entry, difference, entries, lines, packed};
use crate::net::{Net, net};
use burn::module::Module;
use burn::record::*;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub type B = burn::backend::NdArray<f32>;

pub const SALT: u64 = 50;

pub fn device() -> burn::tensor::Device<B> {
    Default::default()
}

pub type Job = Box<dyn Fn(&Path) -> Result<(), String>>;

/// A file by name: how to write it, how to say what Burn sees in it, and how to check one of others.
pub struct File {
    pub name: String,
    pub write: Job,
    pub expect: Box<dyn Fn(&Path) -> Result<String, String>>,
    pub check: Job,
}

/// A file that holds the model, read into a model of other values.
pub fn net_file(
    name: &str,
    half: bool,
    write: impl Fn(&Path, Net<B>) -> Result<(), String> + 'static,
    read: impl Fn(&Path, Net<B>) -> Result<Vec<Entry>, String> + Clone + 'static,
) -> File {
    salted_file(name, half, 0, write, read)
}

/// The same of the model that this salt makes.
fn salted_file(
    name: &str,
    half: bool,
    salt: u64,
    write: impl Fn(&Path, Net<B>) -> Result<(), String> + 'static,
    read: impl Fn(&Path, Net<B>) -> Result<Vec<Entry>, String> + Clone + 'static,
) -> File {
    let again = read.clone();
    let pack = name.ends_with(".bpk");
    File {
        name: name.to_string(),
        write: Box::new(move |path| write(path, net(salt))),
        expect: Box::new(move |path| Ok(lines(&again(path, net(SALT))?))),
        check: Box::new(move |path| {
            let found = read(path, net(SALT))?;
            let mut wanted = entries(&net::<B>(salt));
            if half {
                wanted = wanted.into_iter().map(Entry::halved).collect();
            }
            if pack {
                wanted = packed(wanted);
            }
            if found.iter().all(|entry| entry.id == "-") {
                wanted.iter_mut().for_each(|entry| entry.id = "-".to_string());
            }
            difference(&found, &wanted).map_or(Ok(()), Err)
        }),
    }
}

/// Recorders replace what follows the first dot: the path that makes them write this file.
pub fn stem(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap().to_str().unwrap();
    path.with_file_name(name.split('.').next().unwrap())
}

pub fn recorded<R: FileRecorder<B> + Clone + 'static>(name: &str, half: bool, recorder: R) -> File {
    recorded_salted(name, half, 0, recorder)
}

pub fn recorded_salted<R: FileRecorder<B> + Clone + 'static>(
    name: &str,
    half: bool,
    salt: u64,
    recorder: R,
) -> File {
    let reader = recorder.clone();
    salted_file(
        name,
        half,
        salt,
        move |path, net| net.save_file(stem(path), &recorder).map_err(|e| e.to_string()),
        move |path, net| {
            let net = net.load_file(stem(path), &reader, &device());
            Ok(entries(&net.map_err(|e| e.to_string())?))
        },
    )
}

type Full = FullPrecisionSettings;
type Half = HalfPrecisionSettings;
type Double = DoublePrecisionSettings;

pub fn recorder_files() -> Vec<File> {
    let mut files = vec![
        recorded("net-full.mpk", false, NamedMpkFileRecorder::<Full>::new()),
        recorded("net-half.mpk", true, NamedMpkFileRecorder::<Half>::new()),
        recorded("net-double.mpk", false, NamedMpkFileRecorder::<Double>::new()),
        recorded("net-full.mpk.gz", false, NamedMpkGzFileRecorder::<Full>::new()),
        recorded("net-full.bin", false, BinFileRecorder::<Full>::new()),
        recorded("net-half.bin", true, BinFileRecorder::<Half>::new()),
        recorded("net-double.bin", false, BinFileRecorder::<Double>::new()),
        recorded("net-half.bin.gz", true, BinGzFileRecorder::<Half>::new()),
        recorded("net-full.json", false, PrettyJsonFileRecorder::<Full>::new()),
        recorded("net-half.json", true, PrettyJsonFileRecorder::<Half>::new()),
        recorded("net-full.json.gz", false, JsonGzFileRecorder::<Full>::new()),
    ];
    files.push(net_file(
        "net-bytes.bin",
        false,
        |path, net| {
            let recorder: BinBytesRecorder<Full> = Default::default();
            let bytes = Recorder::<B>::record(&recorder, net.into_record(), ());
            fs::write(path, bytes.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
        },
        |path, net| {
            let recorder: BinBytesRecorder<Full> = Default::default();
            let bytes = fs::read(path).map_err(|e| e.to_string())?;
            let record = Recorder::<B>::load(&recorder, bytes, &device());
            Ok(entries(&net.load_record(record.map_err(|e| e.to_string())?)))
        },
    ));
    files.push(net_file(
        "net-bytes.mpk",
        false,
        |path, net| {
            let recorder: NamedMpkBytesRecorder<Full> = Default::default();
            let bytes = Recorder::<B>::record(&recorder, net.into_record(), ());
            fs::write(path, bytes.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
        },
        |path, net| {
            let recorder: NamedMpkBytesRecorder<Full> = Default::default();
            let bytes = fs::read(path).map_err(|e| e.to_string())?;
            let record = Recorder::<B>::load(&recorder, bytes, &device());
            Ok(entries(&net.load_record(record.map_err(|e| e.to_string())?)))
        },
    ));
    files
}

fn caught<T>(action: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

pub fn main(files: Vec<File>) {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() != 3 {
        eprintln!("usage: {} write|check DIR", arguments[0]);
        std::process::exit(2);
    }
    let folder = PathBuf::from(&arguments[2]);
    let mut failed = false;
    let mut seen = BTreeMap::new();
    std::panic::set_hook(Box::new(|_| {}));
    for file in files {
        let path = folder.join(&file.name);
        let result = match arguments[1].as_str() {
            "write" => {
                fs::create_dir_all(&folder).unwrap();
                caught(|| {
                    (file.write)(&path)?;
                    let text = (file.expect)(&path)?;
                    let beside = folder.join(format!("{}.expect", file.name));
                    fs::write(beside, text).map_err(|e| e.to_string())
                })
            }
            "check" if !path.exists() => continue,
            "check" => caught(|| (file.check)(&path)),
            other => panic!("unknown command {other}"),
        };
        seen.insert(file.name.clone(), ());
        match result {
            Ok(()) => println!("ok {}", file.name),
            Err(text) => {
                let word = if text.contains("instead of") { "DIFFERS" } else { "FAILS" };
                println!("{word} {}: {text}", file.name);
                failed = true;
            }
        }
    }
    if failed || seen.is_empty() {
        println!("{}", if failed { "not all files are right" } else { "no file was found" });
        std::process::exit(1);
    }
}
