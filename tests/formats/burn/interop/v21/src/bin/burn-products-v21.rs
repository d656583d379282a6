//! Answers requests of products.py, a line of JSON each: `{"write": FILE, "case": …}` or `{"read": FILE, "case": …}`.
//! The answer is a line, too: the record that Burn loads from the file, as JSON, or `{"error": …}`.

use burn::backend::{Autodiff, NdArray};
use burn::module::{AutodiffModule, Module, Param, ParamId};
use burn::nn::{Dropout, DropoutConfig, Gelu};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdaGradConfig, AdamConfig, GradientsParams, Optimizer, SgdConfig};
use burn::record::*;
use burn::tensor::backend::Backend;
use burn::tensor::quantization::{
    QuantLevel, QuantMode, QuantParam, QuantScheme, QuantStore, QuantValue,
};
use burn::tensor::{Bool, Int, Tensor, TensorData};
use burn_store::{BurnpackStore, HalfPrecisionAdapter, ModuleSnapshot, ModuleStore};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

type N = NdArray<f32>;
type A = Autodiff<N>;
type Full = FullPrecisionSettings;
type Half = HalfPrecisionSettings;
type Double = DoublePrecisionSettings;

#[derive(Deserialize, Clone)]
struct Case {
    file: String,
    precision: String,
    kind: String,
    shape: Vec<usize>,
    container: String,
    members: usize,
    name: String,
    content: String,
}

/// Random bits (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }
}

/// Floats of any bits, after an infinity, a denormal and a NaN with a payload; where Burn computes, finite ones.
fn floats(count: usize, number: u64, finite: bool) -> Vec<f32> {
    let mut random = Random(number);
    let special = [0xff800000, 1, 0x7fdead01, 0x80000000];
    let any = |i: usize, bits: u64| match special.get(i) {
        Some(&bits) if count > 4 => f32::from_bits(bits),
        _ => f32::from_bits(bits as u32),
    };
    let small = |bits: u64| (bits % 2001) as f32 / 1000.0 - 1.0;
    (0..count).map(|i| if finite { small(random.next()) } else { any(i, random.next()) }).collect()
}

fn id(number: u64) -> ParamId {
    ParamId::from(if number == 0 { 7307477237661669944 } else { 1000 + number })
}

fn float<B: Backend, const D: usize>(case: &Case, number: u64) -> Param<Tensor<B, D>> {
    let shape: [usize; D] = case.shape.clone().try_into().unwrap();
    let finite = case.kind != "float" || case.content != "module";
    let values = floats(shape.iter().product(), number, finite);
    let tensor = Tensor::from_data(TensorData::new(values, shape), &Default::default());
    let scheme = QuantScheme {
        value: QuantValue::Q8S,
        param: QuantParam::F32,
        store: QuantStore::Native,
        level: QuantLevel::Tensor,
        mode: QuantMode::Symmetric,
    };
    let block = QuantLevel::block([*case.shape.last().unwrap() as u8]);
    let tensor = match case.kind.as_str() {
        "q8s" => tensor.quantize_dynamic(&scheme),
        "q8f of blocks" => {
            tensor.quantize_dynamic(&QuantScheme { value: QuantValue::Q8F, level: block, ..scheme })
        }
        _ => tensor,
    };
    Param::initialized(id(number), tensor)
}

fn int<B: Backend, const D: usize>(case: &Case, number: u64) -> Param<Tensor<B, D, Int>> {
    let shape: [usize; D] = case.shape.clone().try_into().unwrap();
    let mut random = Random(number);
    let values: Vec<i64> =
        (0..shape.iter().product()).map(|_| random.next() as i16 as i64).collect();
    let data = TensorData::new(values, shape);
    Param::initialized(id(number), Tensor::from_data(data, &Default::default()))
}

fn flags<B: Backend, const D: usize>(case: &Case, number: u64) -> Param<Tensor<B, D, Bool>> {
    let shape: [usize; D] = case.shape.clone().try_into().unwrap();
    let mut random = Random(number);
    let values: Vec<bool> = (0..shape.iter().product()).map(|_| random.next() % 2 == 1).collect();
    let data = TensorData::new(values, shape);
    Param::initialized(id(number), Tensor::from_data(data, &Default::default()))
}

macro_rules! slot {
    ($($rank:literal $float:ident $int:ident $bool:ident),*) => {
        /// One parameter of any kind and rank.
        #[derive(Module, Debug)]
        struct Slot<B: Backend> {
            $($float: Option<Param<Tensor<B, $rank>>>,
            $int: Option<Param<Tensor<B, $rank, Int>>>,
            $bool: Option<Param<Tensor<B, $rank, Bool>>>,)*
        }

        impl<B: Backend> Slot<B> {
            fn new(case: &Case, number: usize) -> Self {
                let mut slot = Self { $($float: None, $int: None, $bool: None,)* };
                match (case.kind.as_str(), case.shape.len()) {
                    $(("int", $rank) => slot.$int = Some(int(case, number as u64)),
                    ("bool", $rank) => slot.$bool = Some(flags(case, number as u64)),
                    (_, $rank) => slot.$float = Some(float(case, number as u64)),)*
                    (_, rank) => panic!("rank {rank}"),
                }
                slot
            }

            fn require_grad(mut self) -> Self {
                $(self.$float = self.$float.map(|param| param.map(Tensor::require_grad));)*
                self
            }

            fn loss(&self) -> Tensor<B, 1> {
                let mut sum = Tensor::zeros([1], &Default::default());
                $(if let Some(param) = &self.$float {
                    sum = sum + param.val().powf_scalar(2.0).sum();
                })*
                sum
            }
        }
    };
}
slot!(1 f1 i1 b1, 2 f2 i2 b2, 3 f3 i3 b3, 4 f4 i4 b4, 5 f5 i5 b5, 6 f6 i6 b6);

// The variants differ in size, which does not matter here.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
enum Choice<B: Backend> {
    Small(Slot<B>),
    Pair((Slot<B>, Slot<B>)),
    Empty(Dropout),
}

#[derive(Module, Debug)]
struct Deep<B: Backend> {
    inner: Vec<Deeper<B>>,
}

#[derive(Module, Debug)]
struct Deeper<B: Backend> {
    activation: Gelu,
    inner: (Slot<B>, Vec<Option<Slot<B>>>),
}

/// One of the containers; the others are None or empty.
#[derive(Module, Debug)]
struct Holder<B: Backend> {
    plain: Option<Slot<B>>,
    rate: f64,
    vec: Vec<Slot<B>>,
    array: Option<[Slot<B>; 2]>,
    sizes: [usize; 3],
    tuple: Option<(Slot<B>, Slot<B>, Slot<B>)>,
    choice: Option<Choice<B>>,
    choices: Vec<Choice<B>>,
    name: String,
    options: Vec<Option<Slot<B>>>,
    nested: Vec<Vec<Slot<B>>>,
    deep: Option<Deep<B>>,
    limit: Option<usize>,
}

impl<B: Backend> Holder<B> {
    fn new(case: &Case) -> Self {
        let mut holder = Self {
            plain: None,
            rate: 0.125,
            vec: vec![],
            array: None,
            sizes: [1, 2, 3],
            tuple: None,
            choice: None,
            choices: vec![],
            name: "holder".to_string(),
            options: vec![],
            nested: vec![],
            deep: None,
            limit: Some(7),
        };
        let slot = |number| Slot::new(case, number);
        let slots = 0..case.members;
        match case.container.as_str() {
            "plain" => holder.plain = Some(slot(0)),
            "vec" => holder.vec = slots.map(slot).collect(),
            "array" => holder.array = Some([slot(0), slot(1)]),
            "tuple" => holder.tuple = Some((slot(0), slot(1), slot(2))),
            "enum" => holder.choice = Some(Choice::Pair((slot(0), slot(1)))),
            "vec of enums" => {
                holder.choices = slots
                    .map(|i| match i % 3 {
                        0 => Choice::Small(slot(i)),
                        1 => Choice::Empty(DropoutConfig::new(0.5).init()),
                        _ => Choice::Pair((slot(i), slot(i + 5000))),
                    })
                    .collect()
            }
            "vec of options" => {
                holder.options = slots.map(|i| (i % 2 == 0).then(|| slot(i))).collect()
            }
            "vec of vecs" => {
                holder.nested =
                    slots.map(|i| (0..i % 3).map(|j| slot(3 * i + j)).collect()).collect()
            }
            "structs" => {
                let inner = slots
                    .map(|i| Deeper { activation: Gelu::new(), inner: (slot(i), vec![None]) })
                    .collect();
                holder.deep = Some(Deep { inner })
            }
            other => panic!("{other}"),
        }
        holder
    }
}

#[derive(Module, Debug)]

struct Root<B: Backend> {
    weight: Option<Holder<B>>,
    größe: Option<Holder<B>>,
    日本語: Option<Holder<B>>,
    r#type: Option<Holder<B>>,
    _0: Option<Holder<B>>,
    bytes: Option<Holder<B>>,
    id: Option<Holder<B>>,
    x123456789_123456789_123456789_123456789_123456789: Option<Holder<B>>,
}

impl<B: Backend> Root<B> {
    fn new(case: &Case) -> Self {
        let mut root = Self {
            weight: None,
            größe: None,
            日本語: None,
            r#type: None,
            _0: None,
            bytes: None,
            id: None,
            x123456789_123456789_123456789_123456789_123456789: None,
        };
        let field = match case.name.as_str() {
            "weight" => &mut root.weight,
            "größe" => &mut root.größe,
            "日本語" => &mut root.日本語,
            "type" => &mut root.r#type,
            "_0" => &mut root._0,
            "bytes" => &mut root.bytes,
            "id" => &mut root.id,
            _ => &mut root.x123456789_123456789_123456789_123456789_123456789,
        };
        *field = Some(Holder::new(case));
        root
    }
}

type Done = Result<Value, String>;

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What is in an item, and that a record is made of it.
fn shown<B: Backend, R: Record<B>, S: PrecisionSettings>(item: R::Item<S>) -> Done {
    let value = serde_json::to_value(&item).map_err(told)?;
    R::from_item(item, &Default::default());
    Ok(json!({ "tree": value }))
}

/// Writes a record, if there is one, and loads the file.
fn recorded<B: Backend, F: FileRecorder<B>, R: Record<B>>(path: &Path, record: Option<R>) -> Done {
    let recorder = F::default();
    if let Some(record) = record {
        recorder.record(record, path.to_path_buf()).map_err(told)?;
    }
    let item: BurnRecord<R::Item<F::Settings>, B> =
        recorder.load_item(&mut path.to_path_buf()).map_err(told)?;
    shown::<B, R, F::Settings>(item.item)
}

/// The same by a recorder in memory.
fn in_memory<B, F, R>(path: &Path, record: Option<R>) -> Done
where
    B: Backend,
    F: Recorder<B, RecordArgs = (), RecordOutput = Vec<u8>, LoadArgs = Vec<u8>>,
    R: Record<B>,
{
    let recorder = F::default();
    if let Some(record) = record {
        fs::write(path, recorder.record(record, ()).map_err(told)?).map_err(told)?;
    }
    let item: BurnRecord<R::Item<F::Settings>, B> =
        recorder.load_item(&mut fs::read(path).map_err(told)?).map_err(told)?;
    shown::<B, R, F::Settings>(item.item)
}

fn by_settings<B: Backend, R: Record<B>, S: PrecisionSettings>(
    case: &Case,
    path: &Path,
    record: Option<R>,
) -> Done {
    match case.file.as_str() {
        ".mpk" => recorded::<B, NamedMpkFileRecorder<S>, R>(path, record),
        ".mpk.gz" => recorded::<B, NamedMpkGzFileRecorder<S>, R>(path, record),
        ".json" => recorded::<B, PrettyJsonFileRecorder<S>, R>(path, record),
        ".json.gz" => recorded::<B, JsonGzFileRecorder<S>, R>(path, record),
        ".bin" => recorded::<B, BinFileRecorder<S>, R>(path, record),
        ".bin.gz" => recorded::<B, BinGzFileRecorder<S>, R>(path, record),
        ".mpk bytes" => in_memory::<B, NamedMpkBytesRecorder<S>, R>(path, record),
        ".bin bytes" => in_memory::<B, BinBytesRecorder<S>, R>(path, record),
        other => Err(format!("no recorder {other}")),
    }
}

fn by_record<B: Backend, R: Record<B>>(case: &Case, path: &Path, record: Option<R>) -> Done {
    match case.precision.as_str() {
        "Full" => by_settings::<B, R, Full>(case, path, record),
        "Half" => by_settings::<B, R, Half>(case, path, record),
        _ => by_settings::<B, R, Double>(case, path, record),
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// Tensors and metadata of a pack; that the model loads from it, if it has tensors.
fn packed(case: &Case, path: &Path, write: bool) -> Done {
    let mut model = Root::<N>::new(case);
    if write {
        let mut store = BurnpackStore::from_file(path).metadata("note", "by Burn").overwrite(true);
        if case.precision == "Half" {
            store = store.with_to_adapter(HalfPrecisionAdapter::new());
        }
        model.save_into(&mut store).map_err(told)?;
    }
    let mut store = BurnpackStore::from_file(path);
    if case.precision == "Half" {
        store = store.with_from_adapter(HalfPrecisionAdapter::new());
    }
    if !store.get_all_snapshots().map_err(told)?.is_empty() {
        model.load_from(&mut store).map_err(told)?;
    }
    let mut tensors = serde_json::Map::new();
    for (name, snapshot) in BurnpackStore::from_file(path).get_all_snapshots().map_err(told)? {
        let data = snapshot.to_data().map_err(|error| format!("{error:?}"))?;
        let id = snapshot.tensor_id.map(|id| id.to_string());
        tensors.insert(name.clone(), json!({ "id": id, "param": data }));
    }
    let head: Head = ciborium::from_reader(&fs::read(path).map_err(told)?[10..]).map_err(told)?;
    Ok(json!({ "pack": tensors, "metadata": head.metadata }))
}

fn stepped<O: Optimizer<Vec<Slot<A>>, A>>(case: &Case, mut optimizer: O) -> O::Record
where
    Slot<A>: AutodiffModule<A>,
{
    let model: Vec<Slot<A>> =
        (0..case.members).map(|i| Slot::new(case, i).require_grad()).collect();
    let zero = Tensor::<A, 1>::zeros([1], &Default::default());
    let loss = model.iter().fold(zero, |sum, slot| sum + slot.loss());
    if case.members > 0 {
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        optimizer.step(0.01, model, gradients);
    }
    optimizer.to_record()
}

fn optimizer<O: Optimizer<Vec<Slot<A>>, A>>(
    case: &Case,
    path: &Path,
    write: bool,
    made: O,
) -> Done {
    by_record::<A, O::Record>(case, path, write.then(|| stepped(case, made)))
}

fn done(case: &Case, path: &Path, write: bool) -> Done {
    match case.content.as_str() {
        "module" if case.file == ".bpk" => packed(case, path, write),
        "module" => {
            let record = write.then(|| Root::<N>::new(case).into_record());
            by_record::<N, <Root<N> as Module<N>>::Record>(case, path, record)
        }
        "Adam" => optimizer(case, path, write, AdamConfig::new().init::<A, Vec<Slot<A>>>()),
        "AdaGrad" => optimizer(case, path, write, AdaGradConfig::new().init::<A, Vec<Slot<A>>>()),
        _ => {
            let config = SgdConfig::new().with_momentum(Some(MomentumConfig::new()));
            optimizer(case, path, write, config.init::<A, Vec<Slot<A>>>())
        }
    }
}

fn answers() {
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let case: Case = serde_json::from_value(request["case"].clone()).unwrap();
        let write = request.get("write").is_some();
        let path = PathBuf::from(request[if write { "write" } else { "read" }].as_str().unwrap());
        let action = || done(&case, &path, write);
        let result = catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        });
        let answer = result.unwrap_or_else(|error| json!({ "error": error }));
        let mut out = std::io::stdout().lock();
        writeln!(out, "{answer}").unwrap();
        out.flush().unwrap();
    }
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    // Code that is not optimised needs much of the stack for models of this size.
    let thread = std::thread::Builder::new().stack_size(1 << 30).spawn(answers);
    thread.unwrap().join().unwrap();
}
