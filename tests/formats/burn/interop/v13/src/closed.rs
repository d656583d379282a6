//! Sets the parameters of modules whose fields are private, by way of a record.

use crate::net::{Fill, Net, PATHS};
use burn::module::Module;
use burn::record::{FullPrecisionSettings, NamedMpkBytesRecorder, Recorder};
use burn::tensor::backend::Backend;
use rmpv::Value;

fn field<'a>(value: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let Value::Map(fields) = value else { return None };
    fields.iter_mut().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
}

pub fn settled<B: Backend>(net: Net<B>, salt: u64) -> Net<B> {
    let recorder: NamedMpkBytesRecorder<FullPrecisionSettings> = Default::default();
    let bytes = Recorder::<B>::record(&recorder, net.clone().into_record(), ()).unwrap();
    let mut tree = rmpv::decode::read_value(&mut &bytes[..]).unwrap();
    let mut fill = Fill::<B>::new(salt);
    for (p, path) in PATHS.iter().enumerate() {
        if !["norm.", "layer_norm.", "lstm."].iter().any(|start| path.starts_with(start)) {
            continue;
        }
        fill.next = p as u64;
        let item = field(&mut tree, "item").unwrap();
        let param = path.split('.').fold(item, |value, name| field(value, name).unwrap());
        *field(param, "id").unwrap() = fill.id().to_string().into();
        let Some(Value::Array(values)) = field(field(param, "param").unwrap(), "value") else {
            panic!("no values in {path}")
        };
        *values = fill.values(values.len()).into_iter().map(Value::from).collect();
    }
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &tree).unwrap();
    net.load_record(Recorder::<B>::load(&recorder, bytes, &Default::default()).unwrap())
}
