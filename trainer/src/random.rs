//! Counter-based random numbers: each draw is independent of the others, so results depend neither on the order of
//! draws nor on the number of ranks.

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits without visible structure.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns number `index` of a stream of a seed.
pub(crate) fn draw(seed: u64, stream: u64, index: u64) -> u64 {
    let key = mix(seed.wrapping_add(GAMMA.wrapping_mul(stream.wrapping_add(1))));
    mix(key.wrapping_add(GAMMA.wrapping_mul(index.wrapping_add(1))))
}

/// Returns the draw as a number in `[-1, 1)`, exact in f32.
pub(crate) fn draw_symmetric(seed: u64, stream: u64, index: u64) -> f32 {
    // f32 represents 24 bits exactly.
    let whole = (draw(seed, stream, index) >> 40) as f32;
    whole / 8_388_608.0 - 1.0
}

/// Returns the order in which an epoch visits `count` samples.
pub(crate) fn permutation(seed: u64, epoch: u64, count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(count).expect("fewer than 2^32 samples")).collect();
    // Fisher-Yates; the bound is taken from the high bits of a product, with a bias below 2^-50 at these sizes.
    for last in (1..count).rev() {
        let wide = u128::from(draw(seed, ORDER_STREAM ^ epoch, last as u64)) * (last as u128 + 1);
        order.swap(last, (wide >> 64) as usize);
    }
    order
}

/// Separates sample orders from initial weights, which use small stream numbers.
const ORDER_STREAM: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_stream_is_splitmix64() {
        // Reference values of SplitMix64 seeded with 0.
        let splitmix = |index: u64| mix(GAMMA.wrapping_mul(index + 1));
        assert_eq!(splitmix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(splitmix(1), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_permutation_holds_every_sample_once_and_differs_by_epoch() {
        let mut order = permutation(7, 3, 1797);
        assert_ne!(order, permutation(7, 4, 1797));
        assert_ne!(order, permutation(8, 3, 1797));
        assert_eq!(order, permutation(7, 3, 1797));
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..1797));
    }

    #[test]
    fn symmetric_draws_fill_their_interval() {
        let draws: Vec<f32> = (0..10_000).map(|i| draw_symmetric(1, 2, i)).collect();
        assert!(draws.iter().all(|d| (-1.0..1.0).contains(d)));
        let mean = draws.iter().sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.02, "{mean}");
    }
}
