//! Fuzzes safetensors files: any bytes give an error with its cause, or tensors that cover the file without hole or
//! overlap (RG-11).

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_checkpoint_exchange::safetensors::SafetensorsHeader;

fuzz_target!(|data: &[u8]| {
    let Some((length, rest)) = data.split_at_checked(2) else { return };
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    let Some((json, tensors)) = rest.split_at_checked(length) else { return };
    match SafetensorsHeader::parse(json, tensors.len() as u64) {
        Ok(header) => {
            let mut end = 0;
            for tensor in &header.tensors {
                assert_eq!(tensor.start, end);
                assert!(tensor.end >= tensor.start);
                end = tensor.end;
            }
            assert_eq!(end, tensors.len() as u64);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
