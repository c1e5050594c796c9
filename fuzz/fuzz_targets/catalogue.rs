//! Any text as a file of signatures: an error or signatures that can be searched for, never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_faults::{Signature, Taxonomy};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(table) = toml::from_str::<toml::Table>(text) {
        for signature in table.get("signature").and_then(toml::Value::as_array).into_iter().flatten() {
            let _ = signature.clone().try_into::<Signature>();
        }
    }
    let _ = toml::from_str::<Taxonomy>(text);
});
