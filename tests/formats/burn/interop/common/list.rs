// What a model holds, parameter by parameter, and how that reads in the texts beside the files.

use crate::net::{Net, PATHS, number_in};
#[cfg(not(feature = "visit_ids"))]
use burn::module::Param;
use burn::module::{Module, ModuleVisitor, ParamId};
use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor};
use half::f16;

#[derive(Clone, PartialEq)]
pub enum Values {
    F32(Vec<u32>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
}

#[derive(Clone, PartialEq)]
pub struct Entry {
    pub path: String,
    /// The path as Burn's own visit tells it, where it does. In 0.19 it lacks the indices of tuples.
    pub walked: String,
    pub shape: Vec<usize>,
    pub id: String,
    pub values: Values,
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Entry {
    pub fn line(&self) -> String {
        let (dtype, bytes): (&str, Vec<u8>) = match &self.values {
            Values::F32(v) => ("F32", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Values::I64(v) => ("I64", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Values::Bool(v) => ("BOOL", v.iter().map(|&x| x as u8).collect()),
        };
        format!("{}\t{}\t{:?}\t{}\t{}\n", self.path, dtype, self.shape, self.id, hex(&bytes))
    }

    /// The entry as it comes back from floats of half the width.
    pub fn halved(mut self) -> Self {
        if let Values::F32(values) = &mut self.values {
            for bits in values {
                *bits = f16::from_f32(f32::from_bits(*bits)).to_f32().to_bits();
            }
        }
        self
    }
}

pub fn lines(entries: &[Entry]) -> String {
    entries.iter().map(Entry::line).collect()
}

#[derive(Default)]
struct List {
    stack: Vec<String>,
    entries: Vec<Entry>,
}

impl List {
    fn add(&mut self, id: ParamId, shape: Vec<usize>, values: Values) {
        let mut paths = PATHS.iter().filter(|path| {
            !(cfg!(feature = "no_array") && path.starts_with("array."))
                && !(cfg!(feature = "no_empty") && **path == "empty")
        });
        let path = paths.nth(self.entries.len()).unwrap().to_string();
        let walked = self.stack.join(".");
        let text = id.to_string();
        let id = number_in(&text).map(|n| n.to_string()).unwrap_or(text);
        self.entries.push(Entry { path, walked, shape, id, values });
    }
    fn add_float<B: Backend, const D: usize>(&mut self, id: ParamId, tensor: Tensor<B, D>) {
        #[cfg(feature = "old_data")]
        let data: Vec<f32> = tensor.to_data().convert::<f32>().value;
        #[cfg(not(feature = "old_data"))]
        let data = tensor.to_data().convert::<f32>().to_vec::<f32>().unwrap();
        let values = Values::F32(data.iter().map(|x| x.to_bits()).collect());
        self.add(id, tensor.dims().to_vec(), values);
    }
    fn add_int<B: Backend, const D: usize>(&mut self, id: ParamId, tensor: Tensor<B, D, Int>) {
        #[cfg(feature = "old_data")]
        let values = Values::I64(tensor.to_data().convert::<i64>().value);
        #[cfg(not(feature = "old_data"))]
        let values = Values::I64(tensor.to_data().convert::<i64>().to_vec().unwrap());
        self.add(id, tensor.dims().to_vec(), values);
    }
    fn add_bool<B: Backend, const D: usize>(&mut self, id: ParamId, tensor: Tensor<B, D, Bool>) {
        #[cfg(feature = "old_data")]
        let values = Values::Bool(tensor.to_data().value);
        #[cfg(not(feature = "old_data"))]
        let values = Values::Bool(tensor.to_data().convert::<bool>().to_vec().unwrap());
        self.add(id, tensor.dims().to_vec(), values);
    }
}

#[cfg(not(feature = "visit_ids"))]
impl<B: Backend> ModuleVisitor<B> for List {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        self.add_float(param.id, param.val());
    }
    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        self.add_int(param.id, param.val());
    }
    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        self.add_bool(param.id, param.val());
    }
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.stack.push(name.to_string());
    }
    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.stack.pop();
    }
}

#[cfg(all(feature = "visit_ids", not(feature = "id_text")))]
impl<B: Backend> ModuleVisitor<B> for List {
    fn visit_float<const D: usize>(&mut self, id: ParamId, tensor: &Tensor<B, D>) {
        self.add_float(id, tensor.clone());
    }
    fn visit_int<const D: usize>(&mut self, id: ParamId, tensor: &Tensor<B, D, Int>) {
        self.add_int(id, tensor.clone());
    }
    fn visit_bool<const D: usize>(&mut self, id: ParamId, tensor: &Tensor<B, D, Bool>) {
        self.add_bool(id, tensor.clone());
    }
}

#[cfg(feature = "id_text")]
impl<B: Backend> ModuleVisitor<B> for List {
    fn visit_float<const D: usize>(&mut self, id: &ParamId, tensor: &Tensor<B, D>) {
        self.add_float(id.clone(), tensor.clone());
    }
    fn visit_int<const D: usize>(&mut self, id: &ParamId, tensor: &Tensor<B, D, Int>) {
        self.add_int(id.clone(), tensor.clone());
    }
    fn visit_bool<const D: usize>(&mut self, id: &ParamId, tensor: &Tensor<B, D, Bool>) {
        self.add_bool(id.clone(), tensor.clone());
    }
}

/// The parameters of a model in the order of a visit.
pub fn entries<B: Backend>(net: &Net<B>) -> Vec<Entry> {
    let mut list = List::default();
    net.visit(&mut list);
    list.entries
}

/// What a Burnpack file can hold of them: of several with the same path the last one.
#[allow(dead_code)]
pub fn packed(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::new();
    for mut entry in entries {
        entry.path = entry.walked.clone();
        match kept.iter_mut().find(|other| other.path == entry.path) {
            Some(other) => *other = entry,
            None => kept.push(entry),
        }
    }
    kept
}

/// What differs between two lists, in a few words.
pub fn difference(found: &[Entry], wanted: &[Entry]) -> Option<String> {
    if found.len() != wanted.len() {
        return Some(format!("{} parameters instead of {}", found.len(), wanted.len()));
    }
    let differing: Vec<String> = found
        .iter()
        .zip(wanted)
        .filter(|(found, wanted)| found != wanted)
        .map(|(found, wanted)| {
            format!("{} instead of {}", found.line().trim(), wanted.line().trim())
        })
        .collect();
    if differing.is_empty() {
        return None;
    }
    Some(format!(
        "{} parameters differ: {}",
        differing.len(),
        differing[..differing.len().min(3)].join("; ")
    ))
}
