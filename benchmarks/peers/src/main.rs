//! Saves and loads models with a Rust library, on commands from benchmarks/peers.py: `peers LIBRARY SHAPES`. Each line
//! of its input is `save PATH` or `load PATH`; each answer is `= MILLISECONDS`.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Instant;

use burn_core as burn;
use burn_core::module::{Module, Param};
use burn_core::record::{BinFileRecorder, FileRecorder, FullPrecisionSettings, NamedMpkFileRecorder};
use burn_core::tensor::{Tensor, TensorData, backend::Backend};
use burn_store::{BurnpackStore, ModuleSnapshot};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

type Ndarray = burn_ndarray::NdArray<f32>;

/// The tensors of a model as a list of flat tensors with the same bytes, so that one type suffices for all models.
#[derive(Module, Debug)]
struct List<B: Backend> {
    tensors: Vec<Param<Tensor<B, 1>>>,
}

type Numbers = Vec<(String, Vec<usize>, Vec<f32>)>;

fn numbers(shapes: &str) -> Numbers {
    let mut x: u32 = 1;
    std::fs::read_to_string(shapes)
        .unwrap()
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap().to_string();
            let shape: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
            let data = (0..shape.iter().product::<usize>())
                .map(|_| {
                    x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                    (x >> 8) as f32 * 1e-9
                })
                .collect();
            (name, shape, data)
        })
        .collect()
}

fn list(numbers: &Numbers) -> List<Ndarray> {
    let tensors = numbers
        .iter()
        .map(|(_, _, data)| {
            Param::from_tensor(Tensor::from_data(
                TensorData::new(data.clone(), [data.len()]),
                &Default::default(),
            ))
        })
        .collect();
    List { tensors }
}

/// Returns the milliseconds until `run` returns. The result of `run` is dropped after that.
fn milliseconds<T>(run: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let result = run();
    let time = start.elapsed().as_secs_f64() * 1000.0;
    drop(black_box(result));
    time
}

/// A save consumes the model; tensors with another owner would be copied number by number.
fn recorder<R: FileRecorder<Ndarray>>(numbers: &Numbers, recorder: R, order: &str, path: &Path) -> f64 {
    let model = list(numbers);
    match order {
        "save" => milliseconds(|| model.save_file(path, &recorder).unwrap()),
        _ => milliseconds(|| model.load_file(path, &recorder, &Default::default()).unwrap()),
    }
}

fn burnpack(numbers: &Numbers, order: &str, path: &Path) -> f64 {
    let mut model = list(numbers);
    let mut store = BurnpackStore::from_file(path).auto_extension(false).overwrite(true);
    match order {
        "save" => milliseconds(|| model.save_into(&mut store).unwrap()),
        _ => milliseconds(|| {
            model.load_from(&mut store).unwrap();
            model
        }),
    }
}

fn tensors(numbers: &Numbers, order: &str, path: &Path) -> f64 {
    match order {
        "save" => milliseconds(|| {
            let views = numbers.iter().map(|(name, shape, data)| {
                let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), 4 * data.len()) };
                (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
            });
            safetensors::serialize_to_file(views, None, path).unwrap()
        }),
        // The library does not read files: reads the file into memory, and copies each tensor to a vector.
        _ => milliseconds(|| {
            let bytes = std::fs::read(path).unwrap();
            let file = SafeTensors::deserialize(&bytes).unwrap();
            file.iter()
                .map(|(name, view)| (name.to_string(), view.data().to_vec()))
                .collect::<HashMap<_, _>>()
        }),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let library = arguments[1].as_str();
    let numbers = numbers(&arguments[2]);
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (order, path) = line.split_once(' ').unwrap();
        let path = PathBuf::from(path);
        let time = match library {
            "burn-bin" => recorder(&numbers, BinFileRecorder::<FullPrecisionSettings>::new(), order, &path),
            "burn-mpk" => recorder(
                &numbers,
                NamedMpkFileRecorder::<FullPrecisionSettings>::new(),
                order,
                &path,
            ),
            "burn-store" => burnpack(&numbers, order, &path),
            "safetensors" => tensors(&numbers, order, &path),
            _ => panic!("unknown library {library}"),
        };
        println!("= {time}");
    }
}
