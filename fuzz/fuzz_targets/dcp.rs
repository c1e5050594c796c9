//! Fuzzes pickles with objects, and the table of contents of a PyTorch checkpoint: any bytes give an error with its
//! cause, or values. Nothing is executed, nothing panics, and memory is linear in the bytes (RG-11).

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_checkpoint_exchange::dcp::DcpMetadata;
use rankguard_pickle::{ParseLimits, ObjectPolicy};

fuzz_target!(|data: &[u8]| {
    let limits = ParseLimits::default();
    match rankguard_pickle::read(data, &limits, ObjectPolicy::Describe) {
        // An opcode makes at most four values: INST names a class in two lines, and its arguments, and an object of
        // both.
        Ok(read) => assert!(read.tree.count() <= 4 * data.len() + 3),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match DcpMetadata::parse(data) {
        Ok(metadata) => {
            for tensor in metadata.tensors.values() {
                assert!(tensor.size.len() <= 16);
            }
            let named = metadata.tensors.len() + metadata.values.len() + metadata.places.len();
            assert!(named <= data.len(), "more entries than bytes");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
