// A tree of values as text, one line each: `path<TAB>value`, tensors with type, shape and bytes.

use crate::list::hex;
use serde_json::Value;

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn walk(path: &str, value: &Value, lines: &mut String) {
    let below = |name: &str| match path {
        "" => name.to_string(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) if fields.contains_key("bytes") && fields.contains_key("dtype") => {
            let bytes: Vec<u8> = serde_json::from_value(fields["bytes"].clone()).unwrap();
            let shape: Vec<usize> = serde_json::from_value(fields["shape"].clone()).unwrap();
            let dtype = text_of(&fields["dtype"]);
            lines.push_str(&format!("{path}\t{dtype}\t{shape:?}\t-\t{}\n", hex(&bytes)));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| walk(&below(name), value, lines));
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            let numbered = items.iter().enumerate();
            numbered.for_each(|(i, value)| walk(&below(&i.to_string()), value, lines));
        }
        other => lines.push_str(&format!("{path}\t{other}\n")),
    }
}

pub fn flat(value: &impl serde::Serialize) -> String {
    let mut lines = String::new();
    walk("", &serde_json::to_value(value).unwrap(), &mut lines);
    lines
}

/// What differs between two such texts.
pub fn compare(found: &str, wanted: &str) -> Result<(), String> {
    // Burn makes either kind of integer of the other where it reads them.
    let plain = |text: &str| text.replace("\tUInt\t", "\tInt\t");
    let (found, wanted) = (&plain(found), &plain(wanted));
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
