//! Fuzzes files of a checkpoint, and the bodies of an index or a manifest: any input gives an error with its cause, or
//! a consistent description that is unchanged by a round trip and loads as described (RG-11).

#![no_main]

use libfuzzer_sys::fuzz_target;
use rankguard_checkpoint_format::{ChunkDigest, Digest, Manifest, ShardIndex, TensorBox, plan};

/// Limits above which an input only costs time.
const CHUNKS_MAX: u32 = 4096;
const BYTES_MAX: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    as_file(data);
    sealed("rankguard-shard-index", data);
    sealed("rankguard-manifest", data);
    // A fuzzer cannot find digests, so build an index with the right ones.
    if let Ok(mut index) = serde_json::from_slice::<ShardIndex>(data) {
        let chunking = rankguard_checkpoint_format::ChunkLayout::new(&index.tensors, index.chunk_bytes);
        if let Some(count) = chunking
            .map(|chunking| chunking.count())
            .filter(|count| *count <= CHUNKS_MAX)
        {
            let digest = |chunk: u32| ChunkDigest::of(&chunk.to_le_bytes());
            index.set_chunks((0..count).map(digest).collect());
            if index.check().is_ok() {
                is_whole(&index);
            }
        }
    }
});

/// Wraps the text with a right digest.
fn sealed(magic: &str, body: &[u8]) {
    let first = format!("{magic} {}\n", rankguard_checkpoint_format::envelope::VERSION);
    let digest = Digest::of(&[first.as_bytes(), body].concat());
    as_file(&[format!("{first}blake3 {digest}\n").as_bytes(), body, b"\n"].concat());
}

fn as_file(bytes: &[u8]) {
    match ShardIndex::from_bytes(bytes) {
        Ok(index) => is_whole(&index),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match Manifest::from_bytes(bytes) {
        Ok(manifest) => {
            assert_eq!(manifest.shards.len(), manifest.world_size as usize);
            assert!(
                manifest
                    .parent
                    .is_none_or(|(step, generation)| (step, generation) < (manifest.step, manifest.generation))
            );
            let again = Manifest::from_bytes(&manifest.to_bytes());
            assert_eq!(again.as_ref(), Ok(&manifest), "it was written and is another");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks the invariants that all readers of an index rely on.
fn is_whole(index: &ShardIndex) {
    let again = ShardIndex::from_bytes(&index.to_bytes());
    assert_eq!(again.as_ref(), Ok(index), "it was written and is another");
    let chunking = index.chunking();
    let mut end = 0;
    for (chunk, range) in chunking.ranges().enumerate() {
        assert!(
            range.start >= end && range.start < range.end,
            "chunk {chunk} is {range:?} behind {end}"
        );
        let place = chunking.tensor_of(chunk as u32).expect("every chunk is a tensor's");
        let entry = &index.tensors[place];
        let bytes = entry.boxed.bytes().expect("checked");
        assert!(
            entry.at <= range.start && range.end <= entry.at + bytes,
            "chunk {chunk} is of another tensor, too"
        );
        assert_eq!(chunking.chunk_holding(range.start), chunk as u32);
        end = range.end;
    }
    assert!(end <= index.image_bytes);
    let bytes: u64 = index.tensors.iter().filter_map(|entry| entry.boxed.bytes()).sum();
    let wanted: Vec<TensorBox> = index.tensors.iter().map(|entry| entry.boxed.clone()).collect();
    if bytes <= BYTES_MAX {
        loads(index, &wanted, bytes);
    }
}

/// Checks that every requested byte comes from one place of the image. Tensors of one name may differ in shape: then
/// there is no plan.
fn loads(index: &ShardIndex, wanted: &[TensorBox], bytes: u64) {
    let Ok(mut copies) = plan(wanted, std::slice::from_ref(index)) else {
        return;
    };
    copies.sort_by_key(|copy| copy.dest_at);
    let mut end = 0;
    for copy in copies {
        assert_eq!(copy.dest_at, end, "a hole, or a byte of two sources");
        assert!(copy.bytes > 0 && copy.source_at + copy.bytes <= index.image_bytes);
        end += copy.bytes;
    }
    assert_eq!(end, bytes);
}
