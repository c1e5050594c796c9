//! Typical training state: a Llama-like model with Adam, 14 bytes a parameter.
//!
//! bf16 weight and fp32 master, first and second moment for every parameter, and one fp32 step counter; every tensor is
//! cut along its first dimension over the ranks, as fully sharded training does. Bytes follow from the tensor's name
//! and the element's place in the whole tensor, so that any resharding can be checked to the bit.

use rankguard_checkpoint::format::{Dtype, TensorBox};

/// Bytes per parameter.
const BYTES: f64 = 14.0;

/// Tensors of each parameter, with their types.
const KEPT: [(&str, Dtype); 4] = [
    ("weight", Dtype::Bf16),
    ("master", Dtype::F32),
    ("exp_avg", Dtype::F32),
    ("exp_avg_sq", Dtype::F32),
];

/// Returns names and shapes of the parameters of a model with a state of about `gib` GiB.
fn parameters(gib: f64) -> Vec<(String, Vec<u64>)> {
    let (hidden, inner, vocabulary) = if gib < 0.4 {
        (256, 704, 2048)
    } else {
        (1024, 2816, 10_240)
    };
    let layer = (4 * hidden * hidden + 3 * hidden * inner + 2 * hidden) as f64 * BYTES;
    let embedding = (vocabulary * hidden + hidden) as f64 * BYTES;
    let layers = ((gib * f64::from(1 << 30) - embedding) / layer).round().max(1.0) as u64;
    let mut all = vec![
        ("embed".to_owned(), vec![vocabulary, hidden]),
        ("final_norm".to_owned(), vec![hidden]),
    ];
    for nth in 0..layers {
        let mut add = |name: &str, shape: Vec<u64>| all.push((format!("layers.{nth}.{name}"), shape));
        for name in ["q", "k", "v", "o"] {
            add(&format!("attn.{name}"), vec![hidden, hidden]);
        }
        add("mlp.gate", vec![inner, hidden]);
        add("mlp.up", vec![inner, hidden]);
        add("mlp.down", vec![hidden, inner]);
        add("norm1", vec![hidden]);
        add("norm2", vec![hidden]);
    }
    all
}

/// Returns the boxes that rank `rank` of `world` holds.
pub(super) fn boxes(gib: f64, rank: u64, world: u64) -> Vec<TensorBox> {
    let mut boxes = Vec::new();
    for (name, shape) in parameters(gib) {
        let share = shape[0].div_ceil(world);
        let rows = (rank * share).min(shape[0])..((rank + 1) * share).min(shape[0]);
        for (kept, dtype) in KEPT {
            boxes.push(TensorBox::rows(
                format!("{name}.{kept}"),
                dtype,
                shape.clone(),
                rows.clone(),
            ));
        }
        // Every rank has the counter; the copies are equal.
        boxes.push(TensorBox::whole(format!("{name}.step"), Dtype::F32, vec![]));
    }
    boxes
}

/// Generates the bytes of a box, two at a time: the smallest element.
fn pairs(boxed: &TensorBox) -> impl Iterator<Item = [u8; 2]> {
    let seed = boxed.name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    let row: u64 = boxed.global_shape.iter().skip(1).product();
    let first = boxed.offset.first().copied().unwrap_or(0) * row * boxed.dtype.bytes() / 2;
    (first..).map(move |place| {
        let mixed = (seed ^ place).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mixed ^ mixed >> 29) as u16 ^ (mixed >> 40) as u16).to_le_bytes()
    })
}

/// Fills `out` with the bytes of a box.
pub(super) fn fill(boxed: &TensorBox, out: &mut [u8]) {
    for (to, pair) in out.chunks_exact_mut(2).zip(pairs(boxed)) {
        to.copy_from_slice(&pair);
    }
}

/// True if `bytes` is exactly what [`fill`] generates. Allocates nothing, because the memory of the process is
/// measured.
pub(super) fn holds(boxed: &TensorBox, bytes: &[u8]) -> bool {
    bytes.chunks_exact(2).zip(pairs(boxed)).all(|(is, pair)| is == pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_has_about_the_size_that_was_asked_for() {
        for gib in [0.25, 0.5, 1.0, 2.0, 4.0] {
            let bytes: u64 = boxes(gib, 0, 1).iter().filter_map(TensorBox::bytes).sum();
            let off = bytes as f64 / (gib * f64::from(1 << 30)) - 1.0;
            assert!(off.abs() < 0.2, "{gib} GiB: {bytes}");
        }
    }

    #[test]
    fn parts_are_cut_from_one_whole() {
        let whole = &boxes(0.25, 0, 1)[0];
        let mut bytes = vec![0; whole.bytes().expect("small") as usize];
        fill(whole, &mut bytes);
        let mut joined = Vec::new();
        for rank in 0..3 {
            let part = &boxes(0.25, rank, 3)[0];
            let mut out = vec![0; part.bytes().expect("small") as usize];
            fill(part, &mut out);
            assert!(holds(part, &out));
            joined.extend(out);
        }
        assert!(joined == bytes);
    }
}
