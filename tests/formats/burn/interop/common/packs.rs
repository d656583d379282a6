// The model as a file of burn-store, from 0.19 to 0.21.

use crate::files::{B, File, net_file};
use crate::list::{Entry, entries, packed};
use crate::net::Net;
use burn_store::{BurnpackStore, ModuleSnapshot};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

pub fn net_pack() -> File {
    net_file(
        "net.bpk",
        false,
        |path, net| {
            let mut store =
                BurnpackStore::from_file(path).metadata("note", "written by burn").overwrite(true);
            net.save_into(&mut store).map_err(|e| e.to_string())
        },
        |path, net| load_pack(BurnpackStore::from_file(path), path, net),
    )
}

/// Loads from a store, and lists what came with the identifiers that the file has: those of the model
/// stay as they are.
pub fn load_pack(
    mut store: BurnpackStore,
    path: &Path,
    mut net: Net<B>,
) -> Result<Vec<Entry>, String> {
    net.load_from(&mut store).map_err(|e| e.to_string())?;
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    let head: Head = ciborium::from_reader(&bytes[10..]).map_err(|e| e.to_string())?;
    let mut found = packed(entries(&net));
    for entry in &mut found {
        let tensor = head.tensors.get(&entry.path).ok_or(format!("no {}", entry.path))?;
        entry.id = tensor.param_id.map_or("-".to_string(), |id| id.to_string());
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Head {
    tensors: BTreeMap<String, HeadTensor>,
}

#[derive(Deserialize)]
struct HeadTensor {
    param_id: Option<u64>,
}
