// Files that hold no model: a tensor of every type, and a record of every plain value.

use crate::files::{B, File, device, stem};
use crate::flat::{compare, flat};
use burn::module::ParamId;
use burn::record::*;
#[cfg(not(feature = "plain_bool"))]
use burn::tensor::BoolStore;
use burn::tensor::quantization::{
    QuantLevel, QuantMode, QuantParam, QuantScheme, QuantStore, QuantValue,
};
use burn::tensor::{DType, Int, Tensor, TensorData};
use burn_store::{BurnpackStore, BurnpackWriter, ModuleStore, TensorSnapshot};
use half::{bf16, f16};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A tensor of every type.
#[derive(Serialize, Deserialize)]
struct Dtypes {
    f64: TensorData,
    f32: TensorData,
    flex32: TensorData,
    f16: TensorData,
    bf16: TensorData,
    i64: TensorData,
    i32: TensorData,
    i16: TensorData,
    i8: TensorData,
    u64: TensorData,
    u32: TensorData,
    u16: TensorData,
    u8: TensorData,
    bool_native: TensorData,
    #[cfg(not(feature = "plain_bool"))]
    bool_u8: TensorData,
    #[cfg(not(feature = "plain_bool"))]
    bool_u32: TensorData,
    q8s: TensorData,
    q8s_odd: TensorData,
    q8f_block: TensorData,
    q4s: TensorData,
    q2f_block: TensorData,
    e4m3: TensorData,
}

fn bytes_of<const N: usize>(items: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    items.into_iter().flatten().collect()
}

fn raw(bytes: Vec<u8>, shape: &[usize], dtype: DType) -> TensorData {
    TensorData::from_bytes_vec(bytes, shape.to_vec(), dtype)
}

/// What one of Burn's backends makes of values when it quantises them.
fn quantized(values: &[f32], shape: [usize; 2], scheme: QuantScheme) -> TensorData {
    let data = TensorData::new(values.to_vec(), shape);
    Tensor::<B, 2>::from_data(data, &device()).quantize_dynamic(&scheme).into_data()
}

fn dtypes() -> Dtypes {
    let f32s = [f32::from_bits(0x7fc00001), -0.0, 1e-40, f32::NEG_INFINITY, 1.5, -3.25];
    let symmetric = QuantScheme {
        value: QuantValue::Q8S,
        param: QuantParam::F32,
        store: QuantStore::Native,
        level: QuantLevel::Tensor,
        mode: QuantMode::Symmetric,
    };
    Dtypes {
        f64: TensorData::new(vec![1e300, -0.0, f64::NAN, 0.1, f64::INFINITY, -2.5], [2, 3]),
        f32: TensorData::new(f32s.to_vec(), [2, 3]),
        flex32: raw(bytes_of(f32s.map(f32::to_le_bytes)), &[2, 3], DType::Flex32),
        f16: TensorData::new(f32s.map(f16::from_f32).to_vec(), [2, 3]),
        bf16: TensorData::new(f32s.map(bf16::from_f32).to_vec(), [2, 3]),
        i64: TensorData::new(vec![i64::MIN, -1, 0, 1, i64::MAX, 1 << 40], [2, 3]),
        i32: TensorData::new(vec![i32::MIN, -1, 0, 1, i32::MAX, 1 << 20], [2, 3]),
        i16: TensorData::new(vec![i16::MIN, -1, 0, 1, i16::MAX, 1 << 10], [2, 3]),
        i8: TensorData::new(vec![i8::MIN, -1, 0, 1, i8::MAX, 64], [2, 3]),
        u64: TensorData::new(vec![u64::MAX, 0, 1, 250, 251, 1 << 40], [2, 3]),
        u32: TensorData::new(vec![u32::MAX, 0, 1, 250, 251, 1 << 20], [2, 3]),
        u16: TensorData::new(vec![u16::MAX, 0, 1, 250, 251, 1 << 10], [2, 3]),
        u8: TensorData::new(vec![u8::MAX, 0, 1, 250, 251, 64], [2, 3]),
        bool_native: TensorData::new(vec![true, false, true, true, false, false], [2, 3]),
        #[cfg(not(feature = "plain_bool"))]
        bool_u8: raw(vec![1, 0, 1, 1, 0, 0], &[2, 3], DType::Bool(BoolStore::U8)),
        #[cfg(not(feature = "plain_bool"))]
        bool_u32: raw(
            bytes_of([1u32, 0, 1, 1, 0, 0].map(u32::to_le_bytes)),
            &[2, 3],
            DType::Bool(BoolStore::U32),
        ),
        q8s: quantized(&[-1.0, 0.5, 0.25, 0.0, 0.125, 1.0, -0.5, 0.75], [2, 4], symmetric),
        q8s_odd: quantized(&[-1.0, 0.5, 0.25, 0.0, 0.125, 1.0], [2, 3], symmetric),
        q8f_block: quantized(
            &[-1.0, 0.5, 0.25, 0.0, 8.0, -4.0, 2.0, 1.0],
            [2, 4],
            QuantScheme { value: QuantValue::Q8F, level: QuantLevel::block([1, 4]), ..symmetric },
        ),
        // Sixteen values of four bits in two words, and the scale.
        q4s: raw(
            vec![0x21, 0x43, 0x65, 0x07, 0xed, 0xcb, 0xa9, 0x10, 0x00, 0x00, 0x00, 0x3f],
            &[2, 8],
            DType::QFloat(QuantScheme {
                value: QuantValue::Q4S,
                store: QuantStore::PackedU32(0),
                ..symmetric
            }),
        ),
        // Thirty-two values of two bits in two words, and two scales of sixteen bits in one.
        q2f_block: raw(
            vec![0xe4, 0xe4, 0xe4, 0xe4, 0x1b, 0x1b, 0x1b, 0x1b, 0x00, 0x38, 0x00, 0x3c],
            &[2, 16],
            DType::QFloat(QuantScheme {
                value: QuantValue::Q2F,
                param: QuantParam::F16,
                store: QuantStore::PackedU32(1),
                level: QuantLevel::block([16]),
                mode: QuantMode::Symmetric,
            }),
        ),
        e4m3: raw(
            vec![0x38, 0xb8, 0x40, 0x00, 0x7f],
            &[4],
            DType::QFloat(QuantScheme {
                value: QuantValue::E4M3,
                param: QuantParam::UE8M0,
                ..symmetric
            }),
        ),
    }
}

/// All of them but the one whose length Burn's writer takes for another one: it counts with values
/// that are filled up to a multiple of four bytes.
fn snapshots() -> Vec<TensorSnapshot> {
    let all = dtypes();
    let named = [
        ("f64", all.f64),
        ("f32", all.f32),
        ("flex32", all.flex32),
        ("f16", all.f16),
        ("bf16", all.bf16),
        ("i64", all.i64),
        ("i32", all.i32),
        ("i16", all.i16),
        ("i8", all.i8),
        ("u64", all.u64),
        ("u32", all.u32),
        ("u16", all.u16),
        ("u8", all.u8),
        ("bool_native", all.bool_native),
        #[cfg(not(feature = "plain_bool"))]
        ("bool_u8", all.bool_u8),
        #[cfg(not(feature = "plain_bool"))]
        ("bool_u32", all.bool_u32),
        ("q8s", all.q8s),
        ("q8f_block", all.q8f_block),
        ("q4s", all.q4s),
        ("q2f_block", all.q2f_block),
        ("e4m3", all.e4m3),
    ];
    let numbered = named.into_iter().zip(1000u64..);
    numbered
        .map(|((name, data), id)| {
            TensorSnapshot::from_data(data, vec![name.to_string()], vec![], ParamId::from(id))
        })
        .collect()
}

fn pack_text(snapshots: &BTreeMap<String, TensorSnapshot>) -> Result<String, String> {
    let mut text = String::new();
    for (name, snapshot) in snapshots {
        let data = snapshot.to_data().map_err(|e| format!("{name}: {e:?}"))?;
        let id = snapshot.tensor_id.map_or("-".to_string(), |id| id.val().to_string());
        text.push_str(&format!("{name}{}", flat(&data).replacen("\t-\t", &format!("\t{id}\t"), 1)));
    }
    Ok(text)
}

/// A record of every plain value.
#[derive(Record)]
struct Primitives<B: burn::tensor::backend::Backend> {
    text: String,
    yes: bool,
    no: bool,
    f64: f64,
    f32: f32,
    bf16: bf16,
    f16: f16,
    usize: usize,
    u64: u64,
    u32: u32,
    u16: u16,
    u8: u8,
    isize: isize,
    i64: i64,
    i32: i32,
    i16: i16,
    i8: i8,
    none: Option<usize>,
    some: Option<usize>,
    doubles: Vec<f64>,
    nothing: Vec<f64>,
    three: [usize; 3],
    pair: (u32, String),
    map: HashMap<ParamId, f64>,
    tensor: Tensor<B, 2>,
    ints: Tensor<B, 1, Int>,
}

fn primitives() -> Primitives<B> {
    Primitives {
        text: "Grüße, 世界 \"quoted\" \\ \n\u{1}".to_string(),
        yes: true,
        no: false,
        f64: -1e300,
        f32: 0.1,
        bf16: bf16::from_f32(-1.5),
        f16: f16::from_f32(0.1),
        usize: 251,
        u64: u64::MAX,
        u32: 65536,
        u16: 250,
        u8: 255,
        isize: -126,
        i64: i64::MIN,
        i32: -40000,
        i16: 125,
        i8: -128,
        none: None,
        some: Some(300),
        doubles: vec![1.0, -0.5, 1e-7, 1e16, 123456789.125],
        nothing: vec![],
        three: [1, 128, 70000],
        pair: (7, "pair".to_string()),
        map: HashMap::from([(ParamId::from(1001), 2.5)]),
        tensor: Tensor::from_data([[1.0, -2.0], [0.5, 3.0]], &device()),
        ints: Tensor::from_data([1, -2, 70000], &device()),
    }
}

fn dtypes_file<R: FileRecorder<B> + Clone + 'static>(name: &str, recorder: R) -> File {
    let load = {
        let recorder = recorder.clone();
        move |path: &Path| -> Result<String, String> {
            let record: BurnRecord<Dtypes, B> =
                recorder.load_item(&mut stem(path)).map_err(|e| e.to_string())?;
            Ok(flat(&record.item))
        }
    };
    let again = load.clone();
    File {
        name: name.to_string(),
        write: Box::new(move |path| {
            let item = BurnRecord::<_, B>::new::<R>(dtypes());
            recorder.save_item(item, stem(path)).map_err(|e| e.to_string())
        }),
        expect: Box::new(load),
        check: Box::new(move |path| compare(&again(path)?, &flat(&dtypes()))),
    }
}

fn primitives_file<R: FileRecorder<B> + Clone + 'static>(name: &str, recorder: R) -> File {
    let text = |record: Primitives<B>| flat(&record.into_item::<FullPrecisionSettings>());
    let load = {
        let recorder = recorder.clone();
        move |path: &Path| -> Result<String, String> {
            let record = Recorder::<B>::load(&recorder, stem(path), &device());
            Ok(text(record.map_err(|e| e.to_string())?))
        }
    };
    let again = load.clone();
    File {
        name: name.to_string(),
        write: Box::new(move |path| {
            Recorder::<B>::record(&recorder, primitives(), stem(path)).map_err(|e| e.to_string())
        }),
        expect: Box::new(load),
        check: Box::new(move |path| compare(&again(path)?, &text(primitives()))),
    }
}

pub fn value_files() -> Vec<File> {
    type Full = FullPrecisionSettings;
    let pack = |path: &Path| {
        let mut store = BurnpackStore::from_file(path);
        pack_text(store.get_all_snapshots().map_err(|e| e.to_string())?)
    };
    vec![
        dtypes_file("dtypes.mpk", NamedMpkFileRecorder::<Full>::new()),
        dtypes_file("dtypes.bin", BinFileRecorder::<Full>::new()),
        dtypes_file("dtypes.json", PrettyJsonFileRecorder::<Full>::new()),
        File {
            name: "dtypes.bpk".to_string(),
            write: Box::new(|path| {
                BurnpackWriter::new(snapshots()).write_to_file(path).map_err(|e| e.to_string())
            }),
            expect: Box::new(pack),
            check: Box::new(move |path| {
                let wanted = snapshots().into_iter().map(|s| (s.full_path(), s)).collect();
                compare(&pack(path)?, &pack_text(&wanted)?)
            }),
        },
        primitives_file("primitives.mpk", NamedMpkFileRecorder::<Full>::new()),
        primitives_file("primitives.bin", BinFileRecorder::<Full>::new()),
        primitives_file("primitives.json", PrettyJsonFileRecorder::<Full>::new()),
    ]
}
