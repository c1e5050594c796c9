//! Decoding of tensor elements to numbers, for comparison.

use rankguard_checkpoint::format::Dtype;

/// Measured difference between two runs of elements.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ElementDistance {
    /// Number of elements with different bytes.
    pub(crate) changed: u64,
    /// Greatest absolute difference of two finite numbers; `None` where no such pair was compared.
    pub(crate) max_abs: Option<f64>,
    /// Number of changed elements of which one side is infinite or NaN.
    pub(crate) not_finite: u64,
}

/// Returns true if elements of this type are compared as floating-point numbers.
pub(crate) fn is_float(dtype: Dtype) -> bool {
    decoder(dtype).is_some()
}

type ElementDecoder = fn(&[u8]) -> f64;

/// Returns the width in bytes and the decoder of an element, or of half of a complex element.
fn decoder(dtype: Dtype) -> Option<(usize, ElementDecoder)> {
    Some(match dtype {
        Dtype::F64 | Dtype::C128 => (8, |bytes| f64::from_le_bytes(fixed(bytes))),
        Dtype::F32 | Dtype::C64 => (4, |bytes| f32::from_le_bytes(fixed(bytes)).into()),
        Dtype::Bf16 => (2, |bytes| {
            f32::from_bits(u32::from(u16::from_le_bytes(fixed(bytes))) << 16).into()
        }),
        Dtype::F16 => (2, |bytes| small(u16::from_le_bytes(fixed(bytes)).into(), 10, 15, true)),
        Dtype::F8E5M2 => (1, |bytes| small(u32::from(bytes[0]) << 8, 10, 15, true)),
        Dtype::F8E4M3 => (1, |bytes| {
            // Move the sign, four exponent bits and three fraction bits to their positions in the 16-bit
            // layout.
            let sign = u32::from(bytes[0] >> 7);
            let rest = u32::from(bytes[0] & 0x7f);
            if rest == 0x7f {
                f64::NAN
            } else {
                small(sign << 15 | rest, 3, 7, false)
            }
        }),
        _ => return None,
    })
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(bytes);
    word
}

/// Decodes a number of a sign (bit 15), an exponent, and a fraction of `bits` bits.
fn small(raw: u32, bits: u32, bias: i32, has_infinity: bool) -> f64 {
    let sign = if raw >> 15 & 1 == 1 { -1.0 } else { 1.0 };
    let fraction = f64::from(raw & ((1 << bits) - 1)) / f64::from(1 << bits);
    let exponent = (raw & 0x7fff) >> bits;
    let top = 0x7fff >> bits;
    match exponent {
        0 => sign * fraction * 2f64.powi(1 - bias),
        exponent if has_infinity && exponent == top => {
            if fraction == 0.0 {
                sign * f64::INFINITY
            } else {
                f64::NAN
            }
        }
        exponent => sign * (1.0 + fraction) * 2f64.powi(exponent as i32 - bias),
    }
}

impl ElementDistance {
    /// Compares further elements. Both runs have the same length and hold whole elements.
    pub(crate) fn add(&mut self, dtype: Dtype, before: &[u8], after: &[u8]) {
        let width = dtype.bytes() as usize;
        for (one, other) in before.chunks_exact(width).zip(after.chunks_exact(width)) {
            if one == other {
                continue;
            }
            self.changed += 1;
            if let Some((part, decode)) = decoder(dtype) {
                self.compare(part, decode, one, other);
            }
        }
    }

    fn compare(&mut self, part: usize, decode: ElementDecoder, one: &[u8], other: &[u8]) {
        let mut is_finite = true;
        for (one, other) in one.chunks_exact(part).zip(other.chunks_exact(part)) {
            let one = decode(one);
            let other = decode(other);
            if one.is_finite() && other.is_finite() {
                let distance = (one - other).abs();
                self.max_abs = Some(self.max_abs.map_or(distance, |max| max.max(distance)));
            } else {
                is_finite = false;
            }
        }
        self.not_finite += u64::from(!is_finite);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(dtype: Dtype, bytes: &[u8]) -> f64 {
        let (_, decode) = decoder(dtype).expect("a float");
        decode(bytes)
    }

    #[test]
    fn small_floats_are_read_as_their_formats_say() {
        let half = |bits: u16| number(Dtype::F16, &bits.to_le_bytes());
        assert_eq!(
            [half(0x3c00), half(0xc000), half(0x7bff), half(1)],
            [1.0, -2.0, 65504.0, 2f64.powi(-24)]
        );
        assert!(half(0x7c00).is_infinite() && half(0x7e00).is_nan());
        assert_eq!(number(Dtype::Bf16, &0x3f80u16.to_le_bytes()), 1.0);
        let e4m3 = |bits: u8| number(Dtype::F8E4M3, &[bits]);
        assert_eq!(
            [e4m3(0x38), e4m3(0x7e), e4m3(0xb8), e4m3(1)],
            [1.0, 448.0, -1.0, 2f64.powi(-9)]
        );
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
        let e5m2 = |bits: u8| number(Dtype::F8E5M2, &[bits]);
        assert_eq!([e5m2(0x3c), e5m2(0x7b), e5m2(1)], [1.0, 57344.0, 2f64.powi(-16)]);
        assert!(e5m2(0x7c).is_infinite());
    }

    #[test]
    fn distances_are_of_finite_numbers_and_others_are_counted() {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut distance = ElementDistance::default();
        distance.add(
            Dtype::F32,
            &bytes(&[1.0, 2.0, f32::NAN, 3.0]),
            &bytes(&[1.0, 2.5, f32::NAN, f32::INFINITY]),
        );
        assert_eq!(
            (distance.changed, distance.max_abs, distance.not_finite),
            (2, Some(0.5), 1)
        );
        let mut distance = ElementDistance::default();
        distance.add(Dtype::C64, &bytes(&[1.0, 2.0]), &bytes(&[1.0, -2.0]));
        assert_eq!((distance.changed, distance.max_abs), (1, Some(4.0)));
        let mut distance = ElementDistance::default();
        distance.add(Dtype::I8, &[1, 2], &[1, 3]);
        assert_eq!((distance.changed, distance.max_abs), (1, None));
    }
}
