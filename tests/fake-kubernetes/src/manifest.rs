//! Documents of a YAML file as JSON.

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// Parses the documents of a file. Keys that occur twice, anchors and values that JSON lacks are refused.
///
/// # Panics
/// The text is no YAML.
pub fn yaml_documents(text: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(text).unwrap_or_else(|problem| panic!("no YAML: {problem}\n{text}"));
    documents.iter().map(value).collect()
}

fn value(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Real(text) => Value::from(text.parse::<f64>().expect("a number")),
        Yaml::Integer(number) => Value::from(*number),
        Yaml::String(text) => Value::from(text.as_str()),
        Yaml::Boolean(truth) => Value::from(*truth),
        Yaml::Array(items) => Value::Array(items.iter().map(value).collect()),
        Yaml::Hash(fields) => {
            let field = |(key, field): (&Yaml, &Yaml)| {
                let key = key.as_str().unwrap_or_else(|| panic!("{key:?} is no name of a field"));
                (key.to_owned(), value(field))
            };
            Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
        }
        Yaml::Null => Value::Null,
        Yaml::Alias(_) | Yaml::BadValue => panic!("an alias or a bad value"),
    }
}
