//! Files of Burn 0.22: packs of models, optimizers, schedules and anything else.

mod net;

use burn::lr_scheduler::LrSchedulerRecord;
use burn::lr_scheduler::composed::ComposedLrSchedulerConfig;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::module::{Module, Param};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{
    AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, OptimizerRecord, RmsPropConfig,
    SgdConfig,
};
use burn::tensor::quantization::{QuantMode, QuantScheme, QuantStore, QuantValue, ScaleDtype};
use burn::tensor::{BoolStore, Bytes, DType, Device, Tensor, TensorData};
use burn_pack::{Reader, Scalar, Writer};
use net::Lin;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

type Text = Result<String, String>;

/// A file by name: how to write it, what Burn sees in it, and what it should see.
struct File {
    name: &'static str,
    write: fn(&Path) -> Result<(), String>,
    read: fn(&Path) -> Text,
    wanted: fn() -> Text,
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// All that is in a pack: tensors, scalars and metadata, each by name.
fn pack_text(reader: Reader) -> Text {
    let scalars = reader.scalars().clone();
    let metadata = reader.metadata().clone();
    let mut text = String::new();
    for tensor in reader.into_tensors().map_err(told)? {
        let (name, dtype, shape, id, bytes) = tensor.into_parts().map_err(told)?;
        let dtype = match serde_json::to_value(dtype).map_err(told)? {
            serde_json::Value::String(name) => name,
            other => other.to_string(),
        };
        let id = id.map_or("-".to_string(), |id| id.to_string());
        text += &format!("{name}\t{dtype}\t{:?}\t{id}\t{}\n", shape.as_slice(), hex(&bytes));
    }
    for (name, scalar) in scalars {
        text += &match scalar {
            Scalar::Float(value) => format!("{name}\tFloat\t{:016x}\n", value.to_bits()),
            other => format!("{name}\t{}\n", format!("{other:?}").replace(['(', ')'], "\t").trim()),
        };
    }
    for (name, value) in metadata {
        text += &format!("{name}\tmetadata\t{value:?}\n");
    }
    Ok(text)
}

fn file_text(path: &Path) -> Text {
    pack_text(Reader::from_file(path).map_err(told)?)
}

fn made_text(writer: Writer) -> Text {
    pack_text(Reader::from_bytes(writer.into_bytes().map_err(told)?).map_err(told)?)
}

fn everything() -> Writer {
    let f32s = [f32::from_bits(0x7fc00001), -0.0, 1e-40, f32::NEG_INFINITY, 1.5, -3.25];
    let le = |items: &[f32]| items.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let data = |data: TensorData| {
        let (bytes, shape, dtype) = data.into_parts();
        (dtype, shape.as_slice().to_vec(), bytes.to_vec())
    };
    let half = |dtype| data(TensorData::new(f32s.to_vec(), [2, 3]).convert_dtype(dtype));
    let q8 = QuantScheme::default()
        .with_value(QuantValue::Q8S)
        .with_store(QuantStore::Native)
        .with_mode(QuantMode::Symmetric);
    let named: Vec<(&str, (DType, Vec<usize>, Vec<u8>))> = vec![
        (
            "f64",
            data(TensorData::new(vec![1e300, -0.0, f64::NAN, 0.1, f64::INFINITY, -2.5], [2, 3])),
        ),
        ("f32", data(TensorData::new(f32s.to_vec(), [2, 3]))),
        ("flex32", (DType::Flex32, vec![2, 3], le(&f32s))),
        ("f16", half(DType::F16)),
        ("bf16", half(DType::BF16)),
        ("i64", data(TensorData::new(vec![i64::MIN, -1, 0, 1, i64::MAX, 1 << 40], [2, 3]))),
        ("i32", data(TensorData::new(vec![i32::MIN, -1, 0, 1, i32::MAX, 1 << 20], [2, 3]))),
        ("i16", data(TensorData::new(vec![i16::MIN, -1, 0, 1, i16::MAX, 1 << 10], [2, 3]))),
        ("i8", data(TensorData::new(vec![i8::MIN, -1, 0, 1, i8::MAX, 64], [2, 3]))),
        ("u64", data(TensorData::new(vec![u64::MAX, 0, 1, 250, 251, 1 << 40], [2, 3]))),
        ("u32", data(TensorData::new(vec![u32::MAX, 0, 1, 250, 251, 1 << 20], [2, 3]))),
        ("u16", data(TensorData::new(vec![u16::MAX, 0, 1, 250, 251, 1 << 10], [2, 3]))),
        ("u8", data(TensorData::new(vec![u8::MAX, 0, 1, 250, 251, 64], [2, 3]))),
        ("bool_native", (DType::Bool(BoolStore::Native), vec![2, 3], vec![1, 0, 1, 1, 0, 0])),
        ("bool_u8", (DType::Bool(BoolStore::U8), vec![2, 3], vec![1, 0, 1, 1, 0, 0])),
        ("bool_u32", (DType::Bool(BoolStore::U32), vec![2], vec![1, 0, 0, 0, 0, 0, 0, 0])),
        // The values, then the scales.
        (
            "q8s",
            (DType::QFloat(q8), vec![2, 2], vec![0x81, 0x40, 0x20, 0x7f, 0x04, 0x02, 0x01, 0x3c]),
        ),
        (
            "q4s_block",
            (
                DType::QFloat(
                    q8.with_value(QuantValue::Q4S)
                        .with_store(QuantStore::PackedU32(0))
                        .per_block([8], ScaleDtype::F16),
                ),
                vec![2, 8],
                vec![0x21, 0x43, 0x65, 0x07, 0xed, 0xcb, 0xa9, 0x10, 0x00, 0x38, 0x00, 0x3c],
            ),
        ),
        ("rank_0", (DType::F32, vec![], le(&[2.5]))),
        ("no_elements", (DType::F32, vec![0, 3], vec![])),
        ("größe/世界", (DType::U8, vec![1], vec![7])),
    ];
    let tensors = named.into_iter().zip(0u64..).map(|((name, (dtype, shape, bytes)), i)| {
        let id = match name {
            "f64" => None,
            "f32" => Some(u64::MAX),
            _ => Some(1000 + i),
        };
        burn_pack::Tensor::new(name.to_string(), dtype, shape, id, Bytes::from_bytes_vec(bytes))
    });
    scalars(Writer::new(tensors.collect()))
}

fn scalars(writer: Writer) -> Writer {
    [
        ("int", Scalar::Int(-3)),
        ("int_min", Scalar::Int(i64::MIN)),
        ("int_positive", Scalar::Int(300)),
        ("uint", Scalar::UInt(u64::MAX)),
        ("uint_small", Scalar::UInt(7)),
        ("float_half", Scalar::Float(0.5)),
        ("float_single", Scalar::Float(0.1f32 as f64)),
        ("float_tenth", Scalar::Float(0.1)),
        ("float_large", Scalar::Float(1e300)),
        ("float_nan", Scalar::Float(f64::NAN)),
        ("float_infinite", Scalar::Float(f64::NEG_INFINITY)),
        ("float_zero", Scalar::Float(-0.0)),
        ("float_whole", Scalar::Float(100000.0)),
        ("bool_true", Scalar::Bool(true)),
        ("bool_false", Scalar::Bool(false)),
    ]
    .into_iter()
    .fold(writer, |writer, (name, scalar)| writer.with_scalar(name, scalar))
    .with_metadata("note", "written by burn")
    .with_metadata("größe", "世界")
    .with_metadata("a", "")
}

/// A layer of two rows and three columns, with the identifiers 1001 and 1002.
fn layer() -> Lin {
    let device = Device::default().autodiff();
    let tensor = |p: u64, count| TensorData::new(net::values(p, count), [count]);
    let weight = Tensor::<1>::from_data(tensor(1, 6), &device).reshape([2, 3]);
    let bias = Tensor::<1>::from_data(tensor(2, 3), &device);
    Lin {
        weight: Param::initialized(1001.into(), weight.detach().require_grad()),
        bias: Some(Param::initialized(1002.into(), bias.detach().require_grad())),
    }
}

fn stepped(mut optimizer: ModuleOptimizer) -> ModuleOptimizer {
    let lin = layer();
    let input = TensorData::new(vec![1.0f32, -2.0, 0.5, 3.0], [2, 2]);
    let input = Tensor::<2>::from_data(input, &Device::default().autodiff());
    let bias = lin.bias.as_ref().unwrap().val().unsqueeze::<2>();
    let loss = (input.matmul(lin.weight.val()) + bias).powf_scalar(2.0).sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &lin);
    optimizer.step(0.01, lin, gradients);
    optimizer
}

macro_rules! optimizer_file {
    ($name:literal, $make:expr) => {
        File {
            name: $name,
            write: |path| stepped($make).save(path).map_err(told),
            read: |path| {
                let record = OptimizerRecord::load(path).map_err(told)?;
                let bytes = $make.load_record(record).into_bytes().map_err(told)?;
                pack_text(Reader::from_bytes(bytes).map_err(told)?)
            },
            wanted: || {
                let bytes = stepped($make).into_bytes().map_err(told)?;
                pack_text(Reader::from_bytes(bytes).map_err(told)?)
            },
        }
    };
}

fn scheduler(steps: usize) -> ModuleLrScheduler {
    let mut scheduler = ComposedLrSchedulerConfig::new()
        .cosine(CosineAnnealingLrSchedulerConfig::new(0.5, 10))
        .exponential(ExponentialLrSchedulerConfig::new(0.5, 0.75))
        .init()
        .unwrap();
    for _ in 0..steps {
        scheduler.step();
    }
    scheduler
}

fn scheduler_text(steps: usize) -> Text {
    let bytes = scheduler(steps).to_record().into_bytes().map_err(told)?;
    pack_text(Reader::from_bytes(bytes).map_err(told)?)
}

macro_rules! scheduler_file {
    ($name:literal, $steps:literal) => {
        File {
            name: $name,
            write: |path| scheduler($steps).to_record().save(path).map_err(told),
            read: |path| {
                let record = LrSchedulerRecord::load(path).map_err(told)?;
                let loaded = scheduler(7).load_record(record).to_record();
                pack_text(Reader::from_bytes(loaded.into_bytes().map_err(told)?).map_err(told)?)
            },
            wanted: || scheduler_text($steps),
        }
    };
}

fn files() -> Vec<File> {
    vec![
        File {
            name: "net.bpk",
            write: |path| net::net().save_file(path).map_err(told),
            read: net::loaded_text,
            wanted: || Ok(net::text(&net::net())),
        },
        File {
            name: "net-half.bpk",
            write: |path| net::halved(net::net()).save_file(path).map_err(told),
            read: net::loaded_text,
            wanted: || Ok(net::text(&net::halved(net::net()))),
        },
        File {
            name: "dtypes.bpk",
            write: |path| everything().write_to_file(path).map_err(told),
            read: file_text,
            wanted: || made_text(everything()),
        },
        File {
            name: "scalars.bpk",
            write: |path| scalars(Writer::new(vec![])).write_to_file(path).map_err(told),
            read: file_text,
            wanted: || made_text(scalars(Writer::new(vec![]))),
        },
        File {
            name: "nothing.bpk",
            write: |path| Writer::new(vec![]).write_to_file(path).map_err(told),
            read: file_text,
            wanted: || made_text(Writer::new(vec![])),
        },
        optimizer_file!("optimizer.bpk", AdamConfig::new().init()),
        optimizer_file!("adamw.bpk", AdamWConfig::new().with_amsgrad(true).init()),
        optimizer_file!(
            "sgd.bpk",
            SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init()
        ),
        optimizer_file!("rmsprop.bpk", RmsPropConfig::new().with_centered(true).init()),
        scheduler_file!("scheduler.bpk", 3),
        scheduler_file!("scheduler-fresh.bpk", 0),
    ]
}

fn checked(file: &File, path: &Path) -> Result<(), String> {
    // Burn makes either kind of integer of the other where it reads them.
    let plain = |text: String| text.replace("\tUInt\t", "\tInt\t");
    let (found, wanted) = (plain((file.read)(path)?), plain((file.wanted)()?));
    if found == wanted {
        return Ok(());
    }
    let (found, wanted): (Vec<&str>, Vec<&str>) =
        (found.lines().collect(), wanted.lines().collect());
    let first =
        (0..found.len().max(wanted.len())).find(|&i| found.get(i) != wanted.get(i)).unwrap();
    let line = |lines: &[&str]| lines.get(first).unwrap_or(&"nothing").to_string();
    Err(format!("{} instead of {}", line(&found), line(&wanted)))
}

fn written(file: &File, path: &Path) -> Result<(), String> {
    (file.write)(path)?;
    let beside = path.with_file_name(format!("{}.expect", file.name));
    fs::write(beside, (file.read)(path)?).map_err(told)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.len() != 3 || !["write", "check"].contains(&arguments[1].as_str()) {
        eprintln!("usage: {} write|check DIR", arguments[0]);
        std::process::exit(2);
    }
    let folder = PathBuf::from(&arguments[2]);
    let write = arguments[1] == "write";
    let (mut failed, mut seen) = (false, false);
    std::panic::set_hook(Box::new(|_| {}));
    for file in files() {
        let path = folder.join(file.name);
        if write {
            fs::create_dir_all(&folder).unwrap();
        } else if !path.exists() {
            continue;
        }
        seen = true;
        let action = || if write { written(&file, &path) } else { checked(&file, &path) };
        let result = catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        });
        match result {
            Ok(()) => println!("ok {}", file.name),
            Err(text) => {
                let word = if text.contains("instead of") { "DIFFERS" } else { "FAILS" };
                println!("{word} {}: {text}", file.name);
                failed = true;
            }
        }
    }
    if failed || !seen {
        println!("{}", if failed { "not all files are right" } else { "no file was found" });
        std::process::exit(1);
    }
}
