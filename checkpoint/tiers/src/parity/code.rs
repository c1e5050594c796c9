//! Erasure code: XOR for one parity, Reed-Solomon for more.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Maximum number of members of a group.
pub const MEMBERS_MAX: usize = 1024;

/// Maximum number of parities of a group.
pub const PARITY_MAX: usize = 32;

/// Error of encoding or restoring a stripe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each field holds")]
pub enum CodeError {
    #[error(
        "a group of {members} members with {parity} parities; there may be 1 to {MEMBERS_MAX} and 1 to {PARITY_MAX}"
    )]
    Shape { members: usize, parity: usize },
    #[error("{lost} of {members} members are lost and {left} parities are left; each lost member takes one")]
    TooManyLost { members: usize, lost: usize, left: usize },
    #[error(
        "stripes of {expected} and {found} bytes do not go together; a stripe has an even number of bytes, not zero"
    )]
    Length { expected: usize, found: usize },
    #[error("the code refused: {0}")]
    Code(String),
}

/// Code that adds `parity` pieces to every stripe of `members` pieces. Any `parity` of all pieces may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasureCode {
    members: usize,
    parity: usize,
}

impl ErasureCode {
    /// Creates the code for groups of this shape.
    pub fn new(members: usize, parity: usize) -> Result<Self, CodeError> {
        let sound = (1..=MEMBERS_MAX).contains(&members) && (1..=PARITY_MAX).contains(&parity);
        let sound = sound && ReedSolomonEncoder::supports(members, parity);
        if sound {
            Ok(Self { members, parity })
        } else {
            Err(CodeError::Shape { members, parity })
        }
    }

    /// Returns the number of data pieces of a stripe.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Returns the number of parity pieces of a stripe.
    pub fn parity(&self) -> usize {
        self.parity
    }

    /// Computes the parity pieces of a stripe; all pieces have the same even length.
    pub fn encode<T: AsRef<[u8]>>(&self, pieces: &[T]) -> Result<Vec<Vec<u8>>, CodeError> {
        let members = self.members;
        let parity = self.parity;
        if pieces.len() != members {
            let lost = members.abs_diff(pieces.len());
            return Err(CodeError::TooManyLost { members, lost, left: 0 });
        }
        let length = even_length(pieces.iter().map(AsRef::as_ref))?;
        if parity == 1 {
            let mut sum = vec![0; length];
            pieces.iter().for_each(|piece| add(&mut sum, piece.as_ref()));
            return Ok(vec![sum]);
        }
        let mut encoder = encoder(members, parity, length)?;
        for piece in pieces {
            encoder.add_original_shard(piece).map_err(refused)?;
        }
        let encoded = encoder.encode().map_err(refused)?;
        Ok(encoded.recovery_iter().map(<[u8]>::to_vec).collect())
    }

    /// Returns the contribution of the member at `place` to the parity `nth`: the XOR of the contributions of all
    /// members is that parity, so its holder never needs two members at a time. Both numbers must be within the code.
    pub fn share(&self, place: usize, nth: usize, piece: &[u8]) -> Result<Vec<u8>, CodeError> {
        if place >= self.members || nth >= self.parity {
            let members = place.saturating_add(1);
            let parity = nth.saturating_add(1);
            return Err(CodeError::Shape { members, parity });
        }
        let length = even_length(std::iter::once(piece))?;
        if self.parity == 1 {
            return Ok(piece.to_vec());
        }
        let zeros = vec![0; length];
        let mut encoder = encoder(self.members, self.parity, length)?;
        for other in 0..self.members {
            let piece = if other == place { piece } else { &zeros };
            encoder.add_original_shard(piece).map_err(refused)?;
        }
        let encoded = encoder.encode().map_err(refused)?;
        let share = encoded.recovery(nth).map(<[u8]>::to_vec);
        share.ok_or_else(|| CodeError::Code(format!("it gives no parity {nth}")))
    }

    /// Restores the missing members if enough other members and parities are present. Missing parities are not
    /// restored.
    pub fn restore(&self, pieces: &mut [Option<Vec<u8>>], parity: &[Option<Vec<u8>>]) -> Result<(), CodeError> {
        let members = self.members;
        let lost: Vec<usize> = (0..pieces.len()).filter(|&nth| pieces[nth].is_none()).collect();
        let left = parity.iter().flatten().count();
        if pieces.len() != members || parity.len() != self.parity || lost.len() > left {
            let lost = lost.len().max(members.abs_diff(pieces.len()));
            return Err(CodeError::TooManyLost { members, lost, left });
        }
        if lost.is_empty() {
            return Ok(());
        }
        let length = even_length(pieces.iter().chain(parity).flatten().map(Vec::as_slice))?;
        if self.parity == 1 {
            let mut sum = vec![0; length];
            pieces
                .iter()
                .chain(parity)
                .flatten()
                .for_each(|piece| add(&mut sum, piece));
            pieces[lost[0]] = Some(sum);
            return Ok(());
        }
        let mut decoder = ReedSolomonDecoder::new(members, self.parity, length).map_err(refused)?;
        for (nth, piece) in pieces.iter().enumerate() {
            if let Some(piece) = piece {
                decoder.add_original_shard(nth, piece).map_err(refused)?;
            }
        }
        for (nth, piece) in parity
            .iter()
            .enumerate()
            .filter_map(|(nth, piece)| Some((nth, piece.as_ref()?)))
            .take(lost.len())
        {
            decoder.add_recovery_shard(nth, piece).map_err(refused)?;
        }
        let decoded = decoder.decode().map_err(refused)?;
        for nth in lost {
            pieces[nth] = decoded.restored_original(nth).map(<[u8]>::to_vec);
        }
        Ok(())
    }
}

fn encoder(members: usize, parity: usize, length: usize) -> Result<ReedSolomonEncoder, CodeError> {
    ReedSolomonEncoder::new(members, parity, length).map_err(refused)
}

fn refused(problem: reed_solomon_simd::Error) -> CodeError {
    CodeError::Code(problem.to_string())
}

/// Returns the common length of all pieces.
fn even_length<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<usize, CodeError> {
    let mut length = 0;
    for (nth, piece) in pieces.enumerate() {
        let found = piece.len();
        let expected = if nth == 0 { found } else { length };
        if found != expected || found == 0 || !found.is_multiple_of(2) {
            return Err(CodeError::Length { expected, found });
        }
        length = found;
    }
    Ok(length)
}

/// XORs a piece into a sum.
pub(crate) fn add(sum: &mut [u8], piece: &[u8]) {
    let (words, rest) = sum.as_chunks_mut::<8>();
    let (from, from_rest) = piece.as_chunks::<8>();
    for (word, other) in words.iter_mut().zip(from) {
        *word = (u64::from_ne_bytes(*word) ^ u64::from_ne_bytes(*other)).to_ne_bytes();
    }
    for (byte, other) in rest.iter_mut().zip(from_rest) {
        *byte ^= other;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shapes_that_make_no_sense_are_refused() {
        for (members, parity) in [(0, 1), (1, 0), (MEMBERS_MAX + 1, 1), (1, PARITY_MAX + 1)] {
            assert_eq!(
                ErasureCode::new(members, parity),
                Err(CodeError::Shape { members, parity })
            );
        }
        let code = ErasureCode::new(2, 1).expect("a code");
        assert!(matches!(
            code.encode(&[vec![1, 2], vec![1]]),
            Err(CodeError::Length { .. })
        ));
        assert!(matches!(code.encode(&[vec![1, 2]]), Err(CodeError::TooManyLost { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Any `parity` lost pieces, members or parities, are restored exactly; one more gives an error that names the
        /// loss.
        #[test]
        fn any_parity_lost_comes_back_and_one_more_says_so(
            members in 1usize..20,
            parity in 1usize..6,
            half in 1usize..70,
            seed: u64,
            order in proptest::collection::vec(any::<u32>(), 26),
        ) {
            let code = ErasureCode::new(members, parity).expect("a code");
            let byte = |nth: usize, at: usize| (seed.rotate_left(nth as u32 * 7) as usize).wrapping_mul(at + 31) as u8;
            let piece = |nth: usize| (0..2 * half).map(|at| byte(nth, at)).collect();
            let pieces: Vec<Vec<u8>> = (0..members).map(piece).collect();
            let coded = code.encode(&pieces).expect("pieces of one length");
            prop_assert_eq!(coded.len(), parity);
            for (nth, whole) in coded.iter().enumerate() {
                let mut sum = vec![0; 2 * half];
                for (place, piece) in pieces.iter().enumerate() {
                    add(&mut sum, &code.share(place, nth, piece).expect("a share of the code"));
                }
                prop_assert_eq!(&sum, whole, "shares add up to the parity");
            }
            let mut places: Vec<usize> = (0..members + parity).collect();
            places.sort_by_key(|&place| (order[place % order.len()], place));
            let take = |lost: usize| {
                let there = |place: usize, piece: &Vec<u8>| (!places[..lost].contains(&place)).then(|| piece.clone());
                let data: Vec<_> = pieces.iter().enumerate().map(|(nth, piece)| there(nth, piece)).collect();
                let parity: Vec<_> = coded.iter().enumerate().map(|(nth, piece)| there(members + nth, piece)).collect();
                (data, parity)
            };
            let (mut data, left) = take(parity);
            code.restore(&mut data, &left).expect("enough is left");
            prop_assert_eq!(data.into_iter().map(Option::unwrap).collect::<Vec<_>>(), pieces.clone());
            let (mut data, left) = take((parity + 1).min(members + parity));
            let lost = data.iter().filter(|piece| piece.is_none()).count();
            let restored = code.restore(&mut data, &left);
            if lost == 0 {
                prop_assert_eq!(restored, Ok(()), "only parity is lost");
            } else {
                let left = left.iter().flatten().count();
                prop_assert_eq!(restored, Err(CodeError::TooManyLost { members, lost, left }));
            }
        }
    }
}
