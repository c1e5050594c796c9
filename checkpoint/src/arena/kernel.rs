//! Inner loop of the checkpoint engine: one pass that copies and digests at memory speed.
//!
//! The chunk digest is XXH3-128. The library digests bytes without moving them; here every cache line is loaded once,
//! added to the digest and stored with non-temporal stores, so the digest adds no cost to the copy. The long-input part
//! of the algorithm is implemented here for that; short inputs, other machines and the test oracle use the library
//! ([`ChunkDigest::of`]).
//!
//! Non-temporal stores are not ordered by other stores: each function ends with a fence, so a thread that sees a later
//! atomic store also sees the bytes.

use crate::format::ChunkDigest;

/// Block size for the library on machines without a kernel of their own, bytes; fits in the L1 cache.
const BLOCK: usize = 16 << 10;

/// Inputs up to this length use other formulas, which the library implements.
const SHORT: usize = 240;

/// Below this length, aligned non-temporal stores do not pay for the alignment work.
const FAR_LEAST: usize = 4 << 10;

/// Destination and kind of stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    Nowhere,
    /// Cached stores; any alignment.
    Near,
    /// Non-temporal stores; the destination is a multiple of 64.
    Far,
    /// Non-temporal stores, except for this many bytes before the first multiple of 64.
    Shifted(u8),
}

/// Copies `from` to `to` and returns the digest of the copied bytes.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn copy(from: &[u8], to: &mut [u8]) -> ChunkDigest {
    assert_eq!(from.len(), to.len(), "a copy has one length");
    // SAFETY: two live slices of one length; one of them is exclusive, so they do not overlap.
    unsafe { copy_raw(from.as_ptr(), to.as_mut_ptr(), from.len()) }
}

/// Returns the digest of `bytes`.
pub(crate) fn digest(bytes: &[u8]) -> ChunkDigest {
    // SAFETY: a live slice.
    unsafe { digest_raw(bytes.as_ptr(), bytes.len()) }
}

/// Performs [`copy`] between addresses that no reference may point to.
///
/// # Safety
/// `from` is readable and `to` writable for `length` bytes, and they do not overlap. Another process may write to
/// either meanwhile: then bytes and digest are unspecified.
pub(super) unsafe fn copy_raw(from: *const u8, to: *mut u8, length: usize) -> ChunkDigest {
    let how = match to.addr() % 64 {
        0 => WriteMode::Far,
        _ if length < FAR_LEAST => WriteMode::Near,
        past => WriteMode::Shifted(64 - past as u8),
    };
    // SAFETY: as promised by the caller; `Far` only where aligned, and `Shifted` by what is missing to that.
    unsafe { run(from, to, length, how) }
}

/// Returns the digest of bytes that no reference may point to.
///
/// # Safety
/// `from` is readable for `length` bytes.
pub(super) unsafe fn digest_raw(from: *const u8, length: usize) -> ChunkDigest {
    // SAFETY: as promised by the caller; nothing is written.
    unsafe { run(from, std::ptr::null_mut(), length, WriteMode::Nowhere) }
}

/// # Safety
/// `from` is readable for `length` bytes. `to` is writable for `length` bytes unless `how` is `Nowhere`; it is a
/// multiple of 64 for `Far`, and that many bytes before one for `Shifted`.
unsafe fn run(from: *const u8, to: *mut u8, length: usize, how: WriteMode) -> ChunkDigest {
    #[cfg(target_arch = "x86_64")]
    if length > SHORT {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            // SAFETY: the caller's promise, and the processor has what the kernel needs.
            return unsafe { x86::long_avx512(from, to, length, how) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { x86::long_avx2(from, to, length, how) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { by_blocks(from, to, length, how) }
}

/// Handles any length on any machine: each block is copied to private memory, which is then digested and stored.
///
/// # Safety
/// As for [`run`].
unsafe fn by_blocks(from: *const u8, to: *mut u8, length: usize, how: WriteMode) -> ChunkDigest {
    let mut block = [0u8; BLOCK];
    let mut digest = crate::format::ChunkHasher::default();
    let mut at = 0;
    while at < length {
        let part = &mut block[..BLOCK.min(length - at)];
        // SAFETY: `at + part.len() <= length`, in bounds by the caller's promise; the block is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(from.add(at), part.as_mut_ptr(), part.len()) };
        digest.update(part);
        if how != WriteMode::Nowhere {
            // SAFETY: as above, for `to`.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to.add(at), part.len()) };
        }
        at += part.len();
    }
    digest.digest()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::WriteMode;
    use crate::format::ChunkDigest;

    /// The default secret of XXH3.
    #[rustfmt::skip]
    static SECRET: [u8; 192] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
        0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
        0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
        0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
        0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
        0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
        0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
        0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
        0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
        0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
        0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
        0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    ];

    const STRIPE: usize = 64;
    const STRIPES_A_BLOCK: usize = 16;
    /// Offsets in the secret for the scramble after a block, for the last stripe, and for the two halves of the result.
    const SCRAMBLE_AT: usize = 128;
    const LAST_AT: usize = 121;
    const LOW_AT: usize = 11;
    const HIGH_AT: usize = 117;

    const P32: [u64; 3] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D];
    const P64: [u64; 5] = [
        0x9E37_79B1_85EB_CA87,
        0xC2B2_AE3D_27D4_EB4F,
        0x1656_67B1_9E37_79F9,
        0x85EB_CA77_C2B2_AE63,
        0x27D4_EB2F_1656_67C5,
    ];
    const START: [u64; 8] = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]];

    /// # Safety
    /// As for [`super::run`] with more than 240 bytes; the processor has AVX-512 F and DQ.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn long_avx512(from: *const u8, to: *mut u8, length: usize, how: WriteMode) -> ChunkDigest {
        // SAFETY: every access below is at `from + at` or `to + at` with `at + 64 <= length`, or within the secret or
        // the accumulators; `Far` stores are aligned because `to` and every stripe are.
        unsafe {
            let secret = |at: usize| _mm512_loadu_si512(SECRET.as_ptr().add(at).cast());
            let mut acc = _mm512_loadu_si512(START.as_ptr().cast());
            let end = (length - 1) / STRIPE * STRIPE;
            let mut at = 0;
            let mut nth = 0;
            let mix = |acc: __m512i, stripe: __m512i, key: __m512i| {
                let keyed = _mm512_xor_si512(stripe, key);
                let product = _mm512_mul_epu32(keyed, _mm512_srli_epi64::<32>(keyed));
                let swapped = _mm512_shuffle_epi32::<0b01_00_11_10>(stripe);
                _mm512_add_epi64(_mm512_add_epi64(acc, swapped), product)
            };
            while at < end {
                let stripe = _mm512_loadu_si512(from.add(at).cast());
                match how {
                    WriteMode::Nowhere => {}
                    WriteMode::Near => _mm512_storeu_si512(to.add(at).cast(), stripe),
                    WriteMode::Far => _mm512_stream_si512(to.add(at).cast(), stripe),
                    // The last stripes extend past the end; `copy_ends` stores them.
                    WriteMode::Shifted(shift) => {
                        let at = at + usize::from(shift);
                        if at + STRIPE <= length {
                            _mm512_stream_si512(to.add(at).cast(), _mm512_loadu_si512(from.add(at).cast()));
                        }
                    }
                }
                acc = mix(acc, stripe, secret(8 * nth));
                (at, nth) = (at + STRIPE, nth + 1);
                if nth == STRIPES_A_BLOCK {
                    let shifted = _mm512_xor_si512(acc, _mm512_srli_epi64::<47>(acc));
                    let keyed = _mm512_xor_si512(shifted, secret(SCRAMBLE_AT));
                    acc = _mm512_mullo_epi64(keyed, _mm512_set1_epi64(P32[0] as i64));
                    nth = 0;
                }
            }
            copy_ends(from, to, end, length, how);
            acc = mix(
                acc,
                _mm512_loadu_si512(from.add(length - STRIPE).cast()),
                secret(LAST_AT),
            );
            let mut lanes = START;
            _mm512_storeu_si512(lanes.as_mut_ptr().cast(), acc);
            finish(&lanes, length)
        }
    }

    /// # Safety
    /// As for [`super::run`] with more than 240 bytes; the processor has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn long_avx2(from: *const u8, to: *mut u8, length: usize, how: WriteMode) -> ChunkDigest {
        // SAFETY: as for AVX-512, in two halves.
        unsafe {
            let secret = |at: usize| _mm256_loadu_si256(SECRET.as_ptr().add(at).cast());
            let start = START.as_ptr().cast::<__m256i>();
            let mut acc = [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))];
            let end = (length - 1) / STRIPE * STRIPE;
            let mut at = 0;
            let mut nth = 0;
            let mix = |acc: __m256i, stripe: __m256i, key: __m256i| {
                let keyed = _mm256_xor_si256(stripe, key);
                let product = _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed));
                let swapped = _mm256_shuffle_epi32::<0b01_00_11_10>(stripe);
                _mm256_add_epi64(_mm256_add_epi64(acc, swapped), product)
            };
            while at < end {
                for (half, acc) in acc.iter_mut().enumerate() {
                    let place = at + 32 * half;
                    let stripe = _mm256_loadu_si256(from.add(place).cast());
                    match how {
                        WriteMode::Nowhere => {}
                        WriteMode::Near => _mm256_storeu_si256(to.add(place).cast(), stripe),
                        WriteMode::Far => _mm256_stream_si256(to.add(place).cast(), stripe),
                        WriteMode::Shifted(shift) => {
                            let place = place + usize::from(shift);
                            if place + STRIPE / 2 <= length {
                                let line = _mm256_loadu_si256(from.add(place).cast());
                                _mm256_stream_si256(to.add(place).cast(), line);
                            }
                        }
                    }
                    *acc = mix(*acc, stripe, secret(8 * nth + 32 * half));
                }
                (at, nth) = (at + STRIPE, nth + 1);
                if nth == STRIPES_A_BLOCK {
                    for (half, acc) in acc.iter_mut().enumerate() {
                        let shifted = _mm256_xor_si256(*acc, _mm256_srli_epi64::<47>(*acc));
                        let keyed = _mm256_xor_si256(shifted, secret(SCRAMBLE_AT + 32 * half));
                        let prime = _mm256_set1_epi64x(P32[0] as i64);
                        let low = _mm256_mul_epu32(keyed, prime);
                        let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(keyed), prime);
                        *acc = _mm256_add_epi64(low, _mm256_slli_epi64::<32>(high));
                    }
                    nth = 0;
                }
            }
            copy_ends(from, to, end, length, how);
            let mut lanes = START;
            for (half, acc) in acc.iter().enumerate() {
                let stripe = _mm256_loadu_si256(from.add(length - STRIPE + 32 * half).cast());
                let acc = mix(*acc, stripe, secret(LAST_AT + 32 * half));
                _mm256_storeu_si256(lanes.as_mut_ptr().cast::<__m256i>().add(half), acc);
            }
            finish(&lanes, length)
        }
    }

    /// Stores the bytes that the stripes up to `done` did not store: the last ones and, for shifted stores, the first
    /// ones. Then issues the fence that orders non-temporal stores.
    ///
    /// # Safety
    /// As for [`super::run`]; `done` is the last multiple of a stripe below `length`, and everything before was stored.
    unsafe fn copy_ends(from: *const u8, to: *mut u8, done: usize, length: usize, how: WriteMode) {
        let (first, rest) = match how {
            WriteMode::Nowhere => return,
            WriteMode::Near | WriteMode::Far => (0, done),
            // The stored bytes end with the last half stripe that fits, or later.
            WriteMode::Shifted(shift) => (usize::from(shift), length.saturating_sub(2 * STRIPE)),
        };
        // SAFETY: both ends lie in a range that the caller has promised. The fence touches no memory.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, first.min(length));
            std::ptr::copy_nonoverlapping(from.add(rest), to.add(rest), length - rest);
            _mm_sfence();
        }
    }

    /// Combines the eight lanes into two 64-bit halves.
    fn finish(lanes: &[u64; 8], length: usize) -> ChunkDigest {
        let length = length as u64;
        let low = merged(lanes, LOW_AT, length.wrapping_mul(P64[0]));
        let high = merged(lanes, HIGH_AT, !length.wrapping_mul(P64[1]));
        ChunkDigest::from(u128::from(high) << 64 | u128::from(low))
    }

    fn merged(lanes: &[u64; 8], at: usize, start: u64) -> u64 {
        let (words, _) = SECRET[at..].as_chunks::<8>();
        let (mut sum, keyed) = (start, |nth: usize| lanes[nth] ^ u64::from_le_bytes(words[nth]));
        for pair in 0..4 {
            let product = u128::from(keyed(2 * pair)) * u128::from(keyed(2 * pair + 1));
            sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
        }
        sum = (sum ^ sum >> 37).wrapping_mul(0x1656_6791_9E37_79F9);
        sum ^ sum >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Kernel = unsafe fn(*const u8, *mut u8, usize, WriteMode) -> ChunkDigest;

    fn kernels() -> Vec<(&'static str, Kernel, usize)> {
        let mut all: Vec<(&'static str, Kernel, usize)> = vec![("chosen", run, 0), ("by blocks", by_blocks, 0)];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                all.push(("avx2", x86::long_avx2, SHORT + 1));
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
                all.push(("avx512", x86::long_avx512, SHORT + 1));
            }
        }
        all
    }

    fn bytes(length: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    }

    /// Every kernel copies exactly the bytes and returns the library's digest, at every length around every boundary of
    /// the algorithm and at every alignment of source and destination.
    #[test]
    fn every_kernel_is_the_library_and_a_copy() {
        let source = bytes((1 << 16) + 200);
        let lengths = (0..=2200).chain([4096, 4097, 65_535, 65_536, 65_537, 65_600]);
        let mut target = vec![0u8; source.len() + 200];
        for length in lengths {
            let shift = length % 67;
            let from = &source[shift..shift + length];
            let expected = ChunkDigest::of(from);
            for (name, kernel, _) in kernels().into_iter().filter(|(_, _, least)| length >= *least) {
                let line = target.as_ptr().align_offset(64);
                let past = 1 + length % 63;
                let ways = [
                    (WriteMode::Nowhere, line),
                    (WriteMode::Far, line),
                    (WriteMode::Near, line + length % 61),
                    (WriteMode::Shifted(64 - past as u8), line + past),
                ];
                for (how, start) in ways {
                    target.fill(0xAA);
                    // SAFETY: both slices are longer than `length`; `Far` begins at a whole line, `Shifted` the given
                    // distance before one.
                    let found = unsafe { kernel(from.as_ptr(), target.as_mut_ptr().add(start), length, how) };
                    assert_eq!(found, expected, "{name}, {length} bytes");
                    let moved = if how == WriteMode::Nowhere { 0 } else { length };
                    assert!(
                        target[start..start + moved] == from[..moved],
                        "{name}, {length} bytes: wrong copy"
                    );
                    let untouched = target[..start]
                        .iter()
                        .chain(&target[start + moved..])
                        .all(|byte| *byte == 0xAA);
                    assert!(untouched, "{name}, {length} bytes: wrote outside");
                }
            }
        }
    }
}
