//! The model of `common/net.rs` as Burn 0.22 declares models, and what it holds.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, RunningState};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Embedding, EmbeddingConfig, Gelu,
    LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig,
};
use burn::store::ModuleRecord;
use burn::tensor::{Bool, Bytes, DType, Device, FloatDType, Int, Tensor, TensorData};
use burn_pack::{Reader, Writer};
use std::path::Path;

#[derive(Module, Debug)]
pub struct Lin {
    pub weight: Param<Tensor<2>>,
    pub bias: Option<Param<Tensor<1>>>,
}

// The variants differ in size, which does not matter here.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
pub enum Either {
    Small(Lin),
    Pair((Lin, Lin)),
}

#[derive(Module, Debug)]
pub struct Net {
    pub first: Lin,
    pub second: Lin,
    pub list: Vec<Lin>,
    pub array: [Lin; 2],
    pub tuple: (Lin, Lin),
    pub small: Either,
    pub pair: Either,
    pub counts: Param<Tensor<1, Int>>,
    pub mask: Param<Tensor<1, Bool>>,
    pub empty: Param<Tensor<2>>,
    pub absent: Option<Lin>,
    pub present: Option<Lin>,
    pub conv: Conv2d,
    pub norm: BatchNorm,
    pub layer_norm: LayerNorm,
    pub linear: Linear,
    pub embedding: Embedding,
    pub lstm: Lstm,
    pub pool: MaxPool2d,
    pub dropout: Dropout,
    pub activation: Gelu,
    pub groups: usize,
    pub stride: [usize; 2],
    pub rate: f64,
    pub name: String,
}

pub fn number_of(p: u64) -> u64 {
    if p == 0 { 7307477237661669944 } else { 1000 + p }
}

pub fn values(p: u64, count: usize) -> Vec<f32> {
    let mut values: Vec<f32> =
        (0..count as u64).map(|i| ((i * 37 + p * 11) % 97) as f32 / 32.0 - 1.5).collect();
    if p == 0 {
        values[0] = f32::from_bits(0x7fc00000);
        values[1] = -0.0;
        values[2] = 1e-40;
        values[3] = f32::INFINITY;
    }
    values
}

pub fn lin(rows: usize, columns: usize, bias: bool, device: &Device) -> Lin {
    Lin {
        weight: Param::from_tensor(Tensor::ones([rows, columns], device)),
        bias: bias.then(|| Param::from_tensor(Tensor::ones([columns], device))),
    }
}

/// The model with other values and identifiers than the known ones.
pub fn other() -> Net {
    let device = &Device::default();
    Net {
        first: lin(3, 4, true, device),
        second: lin(4, 2, false, device),
        list: vec![lin(2, 2, true, device), lin(2, 3, false, device)],
        array: [lin(1, 2, false, device), lin(2, 1, true, device)],
        tuple: (lin(2, 2, true, device), lin(2, 2, true, device)),
        small: Either::Small(lin(2, 2, true, device)),
        pair: Either::Pair((lin(1, 1, false, device), lin(1, 1, false, device))),
        counts: Param::initialized(5000.into(), Tensor::from_data([5, 5, 5, 5], device)),
        mask: Param::initialized(5001.into(), Tensor::from_data([false, true, false], device)),
        empty: Param::from_tensor(Tensor::from_data(
            TensorData::new(Vec::<f32>::new(), [0, 3]),
            device,
        )),
        absent: None,
        present: Some(lin(1, 2, true, device)),
        conv: Conv2dConfig::new([1, 2], [3, 3]).init(device),
        norm: BatchNormConfig::new(2).init(device),
        layer_norm: LayerNormConfig::new(4).init(device),
        linear: LinearConfig::new(2, 3).init(device),
        embedding: EmbeddingConfig::new(3, 2).init(device),
        lstm: LstmConfig::new(2, 3, true).init(device),
        pool: MaxPool2dConfig::new([2, 2]).init(),
        dropout: DropoutConfig::new(0.25).init(),
        activation: Gelu::new(),
        groups: 3,
        stride: [2, 1],
        rate: 0.125,
        name: "net".to_string(),
    }
}

/// The model with the known parameters: they come in by a record, which sets identifiers too.
pub fn net() -> Net {
    let net = other();
    let tensors = entries(&net).into_iter().zip(0..).map(|(entry, p)| {
        let bytes: Vec<u8> = match entry.path.as_str() {
            "counts" => [1i32, -2, 300, 32767].iter().flat_map(|x| x.to_le_bytes()).collect(),
            "mask" => vec![1, 0, 1],
            _ => {
                let count = entry.data.shape().num_elements();
                values(p, count).iter().flat_map(|x| x.to_le_bytes()).collect()
            }
        };
        let dtype = match entry.path.as_str() {
            "counts" => DType::I32,
            _ => entry.data.dtype(),
        };
        let (path, shape) = (entry.path, entry.data.shape().clone());
        let bytes = Bytes::from_bytes_vec(bytes);
        burn_pack::Tensor::new(path, dtype, shape, Some(number_of(p)), bytes)
    });
    let bytes = Writer::new(tensors.collect()).into_bytes().unwrap();
    let mut net = net.try_load_record(ModuleRecord::from_bytes(bytes).unwrap()).unwrap();
    // All but those of running states.
    let norm = &mut net.norm;
    norm.running_mean = RunningState::with_id(1026.into(), norm.running_mean.value());
    norm.running_var = RunningState::with_id(1027.into(), norm.running_var.value());
    net
}

/// The text of a file's model. Identifiers of running states are the file's: loading keeps those that
/// the model has.
pub fn loaded_text(path: &Path) -> Result<String, String> {
    let mut entries = entries(&other().try_load_file(path).map_err(|e| e.to_string())?);
    for tensor in
        Reader::from_file(path).and_then(Reader::into_tensors).map_err(|e| e.to_string())?
    {
        if let Some(entry) = entries.iter_mut().find(|entry| entry.path == tensor.name)
            && entry.path.contains(".running_")
        {
            entry.id = tensor.param_id.unwrap_or_default();
        }
    }
    Ok(entries.into_iter().map(line).collect())
}

struct Halve;

impl ModuleMapper for Halve {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.cast(FloatDType::F16))
    }
}

/// The same model with floats of half the width.
pub fn halved(net: Net) -> Net {
    net.map(&mut Halve)
}

pub struct Entry {
    pub path: String,
    pub id: u64,
    pub data: TensorData,
}

#[derive(Default)]
struct List {
    stack: Vec<String>,
    entries: Vec<Entry>,
}

impl List {
    fn add(&mut self, id: u64, data: TensorData) {
        self.entries.push(Entry { path: self.stack.join("."), id, data });
    }
}

impl ModuleVisitor for List {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.add(param.id.val(), param.val().into_data());
    }
    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.add(param.id.val(), param.val().into_data());
    }
    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.add(param.id.val(), param.val().into_data());
    }
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.stack.push(name.to_string());
    }
    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.stack.pop();
    }
}

pub fn entries(net: &impl Module) -> Vec<Entry> {
    let mut list = List::default();
    net.visit(&mut list);
    list.entries
}

/// A line for a parameter, converted to one of three types.
fn line(Entry { path, id, data }: Entry) -> String {
    let shape = data.shape().as_slice().to_vec();
    let (dtype, bytes): (&str, Vec<u8>) = match data.dtype() {
        DType::Bool(_) => ("BOOL", data.iter::<bool>().map(|x| x as u8).collect()),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            ("I64", data.iter::<i64>().flat_map(|x| x.to_le_bytes()).collect())
        }
        _ => ("F32", data.iter::<f32>().flat_map(|x| x.to_le_bytes()).collect()),
    };
    format!("{path}\t{dtype}\t{shape:?}\t{id}\t{}\n", super::hex(&bytes))
}

pub fn text(net: &Net) -> String {
    entries(net).into_iter().map(line).collect()
}
