// The model that every program here writes and reads, with parameters that are known in advance.
//
// Parameter number p (in the order of a visit, from 0) has the identifier 1000 + p and the elements
// ((i * 37 + p * 11) % 97) / 32 - 1.5. The first one has special values in front and an identifier of
// all eight bytes.
//
// Features of the crates that include this file name what differs between versions of Burn, and what
// a version cannot have: see the manifests.

#[cfg(not(feature = "closed"))]
use burn::module::RunningState;
use burn::module::{Module, Param, ParamId};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Embedding, EmbeddingConfig, Gelu,
    LayerNorm, LayerNormConfig, Linear, LinearConfig, Lstm, LstmConfig,
};
#[cfg(not(feature = "old_data"))]
use burn::tensor::TensorData;
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};
#[cfg(feature = "old_data")]
use burn::tensor::{Data, Shape};

#[derive(Module, Debug)]
pub struct Lin<B: Backend> {
    pub weight: Param<Tensor<B, 2>>,
    pub bias: Option<Param<Tensor<B, 1>>>,
}

// The variants differ in size, which does not matter here.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
pub enum Either<B: Backend> {
    Small(Lin<B>),
    Pair((Lin<B>, Lin<B>)),
}

#[derive(Module, Debug)]
pub struct Net<B: Backend> {
    pub first: Lin<B>,
    pub second: Lin<B>,
    pub list: Vec<Lin<B>>,
    #[cfg(not(feature = "no_array"))]
    pub array: [Lin<B>; 2],
    pub tuple: (Lin<B>, Lin<B>),
    pub small: Either<B>,
    pub pair: Either<B>,
    pub counts: Param<Tensor<B, 1, Int>>,
    pub mask: Param<Tensor<B, 1, Bool>>,
    #[cfg(not(feature = "no_empty"))]
    pub empty: Param<Tensor<B, 2>>,
    pub absent: Option<Lin<B>>,
    pub present: Option<Lin<B>>,
    pub conv: Conv2d<B>,
    #[cfg(feature = "norm_rank")]
    pub norm: BatchNorm<B, 2>,
    #[cfg(not(feature = "norm_rank"))]
    pub norm: BatchNorm<B>,
    pub layer_norm: LayerNorm<B>,
    pub linear: Linear<B>,
    pub embedding: Embedding<B>,
    pub lstm: Lstm<B>,
    pub pool: MaxPool2d,
    pub dropout: Dropout,
    pub activation: Gelu,
    pub groups: usize,
    pub stride: [usize; 2],
    pub rate: f64,
    pub name: String,
}

/// Where the parameters lie, in the order of a visit.
pub const PATHS: &[&str] = &[
    "first.weight",
    "first.bias",
    "second.weight",
    "list.0.weight",
    "list.0.bias",
    "list.1.weight",
    "array.0.weight",
    "array.1.weight",
    "array.1.bias",
    "tuple.0.weight",
    "tuple.0.bias",
    "tuple.1.weight",
    "tuple.1.bias",
    "small.Small.weight",
    "small.Small.bias",
    "pair.Pair.0.weight",
    "pair.Pair.1.weight",
    "counts",
    "mask",
    "empty",
    "present.weight",
    "present.bias",
    "conv.weight",
    "conv.bias",
    "norm.gamma",
    "norm.beta",
    "norm.running_mean",
    "norm.running_var",
    "layer_norm.gamma",
    "layer_norm.beta",
    "linear.weight",
    "linear.bias",
    "embedding.weight",
    "lstm.input_gate.input_transform.weight",
    "lstm.input_gate.input_transform.bias",
    "lstm.input_gate.hidden_transform.weight",
    "lstm.input_gate.hidden_transform.bias",
    "lstm.forget_gate.input_transform.weight",
    "lstm.forget_gate.input_transform.bias",
    "lstm.forget_gate.hidden_transform.weight",
    "lstm.forget_gate.hidden_transform.bias",
    "lstm.output_gate.input_transform.weight",
    "lstm.output_gate.input_transform.bias",
    "lstm.output_gate.hidden_transform.weight",
    "lstm.output_gate.hidden_transform.bias",
    "lstm.cell_gate.input_transform.weight",
    "lstm.cell_gate.input_transform.bias",
    "lstm.cell_gate.hidden_transform.weight",
    "lstm.cell_gate.hidden_transform.bias",
];

const FIRST_ID: u64 = 7307477237661669944;

pub fn number_of(p: u64) -> u64 {
    if p == 0 { FIRST_ID } else { 1000 + p }
}

const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Bytes in lower-case base32hex.
#[cfg(all(feature = "id_text", not(feature = "id_uuid")))]
fn base32(bytes: &[u8]) -> String {
    let mut bits = 0u32;
    let mut have = 0;
    let mut text = String::new();
    for &byte in bytes {
        bits = (bits << 8) | byte as u32;
        have += 8;
        while have >= 5 {
            have -= 5;
            text.push(DIGITS[(bits >> have) as usize & 31] as char);
        }
    }
    text.push(DIGITS[(bits << (5 - have)) as usize & 31] as char);
    text
}

/// The number of an identifier's text, if it has the characters of six or eight bytes.
pub fn number_in(text: &str) -> Option<u64> {
    let bytes = match text.len() {
        10 => 6,
        13 => 8,
        _ => return None,
    };
    let mut value: u128 = 0;
    for character in text.bytes() {
        value = value << 5 | DIGITS.iter().position(|&digit| digit == character)? as u128;
    }
    let value = (value >> (text.len() * 5 - bytes * 8)) as u64;
    Some((value << (64 - bytes * 8)).swap_bytes())
}

#[cfg(not(feature = "id_text"))]
pub fn param_id(id: u64) -> ParamId {
    ParamId::from(id)
}
/// Identifiers as 0.14 makes them: six bytes.
#[cfg(all(feature = "id_text", not(feature = "id_uuid")))]
pub fn param_id(id: u64) -> ParamId {
    ParamId::from(base32(&id.to_le_bytes()[..6]))
}
/// Identifiers as 0.13 makes them.
#[cfg(feature = "id_uuid")]
pub fn param_id(id: u64) -> ParamId {
    ParamId::from(format!("{:08x}-0000-4000-8000-{:012x}", id >> 48, id & 0xffff_ffff_ffff))
}

/// Hands out parameters in the order of a visit; with salt, others than the known ones.
pub struct Fill<B: Backend> {
    pub next: u64,
    pub salt: u64,
    pub device: B::Device,
}

impl<B: Backend> Fill<B> {
    pub fn new(salt: u64) -> Self {
        Self { next: 0, salt, device: Default::default() }
    }

    pub fn id(&self) -> ParamId {
        param_id(if self.salt == 0 { number_of(self.next) } else { 5000 * self.salt + self.next })
    }

    pub fn values(&self, count: usize) -> Vec<f32> {
        let mut values: Vec<f32> = (0..count as u64)
            .map(|i| ((i * 37 + self.next * 11 + self.salt) % 97) as f32 / 32.0 - 1.5)
            .collect();
        if self.next == 0 && self.salt == 0 {
            values[0] = f32::from_bits(0x7fc00000);
            values[1] = -0.0;
            values[2] = 1e-40;
            values[3] = f32::INFINITY;
        }
        values
    }

    pub fn float<const D: usize>(&mut self, shape: [usize; D]) -> Param<Tensor<B, D>> {
        let values = self.values(shape.iter().product());
        #[cfg(feature = "old_data")]
        let data = Data::new(values, Shape::new(shape)).convert();
        #[cfg(not(feature = "old_data"))]
        let data = TensorData::new(values, shape);
        let param = Param::initialized(self.id(), Tensor::from_data(data, &self.device));
        self.next += 1;
        param
    }

    pub fn like<const D: usize>(&mut self, param: &mut Param<Tensor<B, D>>) {
        *param = self.float(param.val().dims());
    }

    #[cfg(not(feature = "closed"))]
    pub fn running(&mut self, state: &mut RunningState<Tensor<B, 1>>) {
        let size = state.value().dims();
        *state = state.clone().load_record(self.float(size));
    }

    pub fn lin(&mut self, rows: usize, columns: usize, bias: bool) -> Lin<B> {
        let weight = self.float([rows, columns]);
        let bias = bias.then(|| self.float([columns]));
        Lin { weight, bias }
    }

    pub fn linear(&mut self, linear: &mut Linear<B>) {
        self.like(&mut linear.weight);
        self.like(linear.bias.as_mut().unwrap());
    }
}

#[allow(dead_code)]
/// What a layer normalisation's beta is: a parameter, or one that may be missing (from 0.20 on).
pub trait MayMiss<B: Backend> {
    fn param(&mut self) -> &mut Param<Tensor<B, 1>>;
}
impl<B: Backend> MayMiss<B> for Param<Tensor<B, 1>> {
    fn param(&mut self) -> &mut Param<Tensor<B, 1>> {
        self
    }
}
impl<B: Backend> MayMiss<B> for Option<Param<Tensor<B, 1>>> {
    fn param(&mut self) -> &mut Param<Tensor<B, 1>> {
        self.as_mut().unwrap()
    }
}

/// The model with the known parameters, or with salt one of other values and identifiers.
pub fn net<B: Backend>(salt: u64) -> Net<B> {
    #[cfg(feature = "closed")]
    return crate::closed::settled(made(salt), salt);
    #[cfg(not(feature = "closed"))]
    made(salt)
}

fn made<B: Backend>(salt: u64) -> Net<B> {
    let mut fill = Fill::<B>::new(salt);
    let device = fill.device.clone();
    Net {
        first: fill.lin(3, 4, true),
        second: fill.lin(4, 2, false),
        list: vec![fill.lin(2, 2, true), fill.lin(2, 3, false)],
        #[cfg(not(feature = "no_array"))]
        array: [fill.lin(1, 2, false), fill.lin(2, 1, true)],
        tuple: {
            fill.next = 9;
            (fill.lin(2, 2, true), fill.lin(2, 2, true))
        },
        small: Either::Small(fill.lin(2, 2, true)),
        pair: Either::Pair((fill.lin(1, 1, false), fill.lin(1, 1, false))),
        counts: {
            let values: Vec<i32> = if salt == 0 { vec![1, -2, 300, 32767] } else { vec![5; 4] };
            #[cfg(feature = "old_data")]
            let data = Data::new(values, Shape::new([4])).convert();
            #[cfg(not(feature = "old_data"))]
            let data = TensorData::new(values, [4]);
            let tensor = Tensor::from_data(data, &device);
            let param = Param::initialized(fill.id(), tensor);
            fill.next += 1;
            param
        },
        mask: {
            let values = vec![salt == 0, salt != 0, salt == 0];
            #[cfg(feature = "old_data")]
            let data = Data::new(values, Shape::new([3]));
            #[cfg(not(feature = "old_data"))]
            let data = TensorData::new(values, [3]);
            let tensor = Tensor::from_data(data, &device);
            let param = Param::initialized(fill.id(), tensor);
            fill.next += 1;
            param
        },
        #[cfg(not(feature = "no_empty"))]
        empty: fill.float([0, 3]),
        absent: None,
        present: {
            fill.next = 20;
            Some(fill.lin(1, 2, true))
        },
        conv: {
            let mut conv = Conv2dConfig::new([1, 2], [3, 3]).init(&device);
            fill.like(&mut conv.weight);
            fill.like(conv.bias.as_mut().unwrap());
            conv
        },
        norm: {
            #[allow(unused_mut)]
            let mut norm = BatchNormConfig::new(2).init(&device);
            #[cfg(not(feature = "closed"))]
            {
                fill.like(&mut norm.gamma);
                fill.like(&mut norm.beta);
                fill.running(&mut norm.running_mean);
                fill.running(&mut norm.running_var);
            }
            norm
        },
        layer_norm: {
            #[allow(unused_mut)]
            let mut norm = LayerNormConfig::new(4).init(&device);
            #[cfg(not(feature = "closed"))]
            {
                fill.like(&mut norm.gamma);
                fill.like(norm.beta.param());
            }
            norm
        },
        linear: {
            fill.next = 30;
            let mut linear = LinearConfig::new(2, 3).init(&device);
            fill.linear(&mut linear);
            linear
        },
        embedding: {
            let mut embedding = EmbeddingConfig::new(3, 2).init(&device);
            fill.like(&mut embedding.weight);
            embedding
        },
        lstm: {
            #[allow(unused_mut)]
            let mut lstm = LstmConfig::new(2, 3, true).init(&device);
            #[cfg(not(feature = "closed"))]
            for gate in [
                &mut lstm.input_gate,
                &mut lstm.forget_gate,
                &mut lstm.output_gate,
                &mut lstm.cell_gate,
            ] {
                fill.linear(&mut gate.input_transform);
                fill.linear(&mut gate.hidden_transform);
            }
            lstm
        },
        pool: MaxPool2dConfig::new([2, 2]).init(),
        dropout: DropoutConfig::new(0.25).init(),
        activation: Gelu::new(),
        groups: 3,
        stride: [2, 1],
        rate: 0.125,
        name: "net".to_string(),
    }
}
