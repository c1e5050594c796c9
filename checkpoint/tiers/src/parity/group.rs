//! Encoding of a group of files, and restoring of their lost parts.

use std::io;
use std::sync::Mutex;

use rankguard_checkpoint::ImageSource;
use rankguard_checkpoint::format::{ChunkDigest, ChunkOrigin, Digest};
use rankguard_model::JobId;

use super::ParityError;
use super::code::ErasureCode;
use super::descriptor::{GroupDescriptor, ParityMember, digest_at};

/// Bytes of each member in one stripe: long enough to code at memory speed, short enough to restore a chunk from
/// few bytes.
pub const STRIPE_BYTES: u32 = 256 << 10;

/// File to encode.
pub struct OriginalFile<'a> {
    /// Checkpoint and rank that wrote the shard.
    pub file: ChunkOrigin,
    /// Length in bytes.
    pub bytes: u64,
    /// Digest of its index.
    pub index: Digest,
    /// Content of the file.
    pub content: &'a (dyn ImageSource + Sync),
}

/// Computes the parity of a group, stripe by stripe; `put` receives the number of the parity file and its next
/// bytes. Members may differ in length: shorter ones are padded with zeros.
pub fn encode(
    job: &JobId,
    originals: &[OriginalFile<'_>],
    parity: usize,
    stripe_bytes: u32,
    mut put: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> Result<GroupDescriptor, ParityError> {
    let code = ErasureCode::new(originals.len(), parity)?;
    let member = |original: &OriginalFile<'_>| ParityMember {
        file: original.file,
        bytes: original.bytes,
        index: original.index,
        stripes: String::new(),
    };
    let mut descriptor = GroupDescriptor {
        job: job.clone(),
        stripe_bytes,
        members: originals.iter().map(member).collect(),
        parity: vec![String::new(); parity],
    };
    let mut pieces: Vec<Vec<u8>> = vec![Vec::new(); originals.len()];
    for nth in 0..descriptor.stripes() {
        let range = descriptor.stripe(nth);
        for ((piece, original), member) in pieces.iter_mut().zip(originals).zip(&mut descriptor.members) {
            let there =
                read_padded(original.content, original.bytes, &range, piece).map_err(|source| ParityError::Read {
                    file: original.file,
                    at: range.start,
                    source,
                })?;
            if there > 0 {
                member.stripes.push_str(&ChunkDigest::of(&piece[..there]).to_string());
            }
        }
        for (nth, piece) in code.encode(&pieces)?.iter().enumerate() {
            descriptor.parity[nth].push_str(&ChunkDigest::of(piece).to_string());
            put(nth, piece).map_err(|source| ParityError::Write { parity: nth, source })?;
        }
    }
    Ok(descriptor)
}

/// Fills `piece` with a range of a file, padded with zeros; returns the number of bytes that come from the file.
fn read_padded(
    content: &dyn ImageSource,
    bytes: u64,
    range: &std::ops::Range<u64>,
    piece: &mut Vec<u8>,
) -> io::Result<usize> {
    let there = bytes.min(range.end).saturating_sub(range.start) as usize;
    piece.clear();
    piece.resize((range.end - range.start) as usize, 0);
    if there > 0 {
        content.read_at(range.start, &mut piece[..there])?;
    }
    Ok(there)
}

/// Number of a stripe and its restored pieces.
type RestoredStripe = (u64, Vec<Option<Vec<u8>>>);

/// Remainder of a group: a piece that is unreadable or has another digest counts as lost, stripe by stripe.
pub struct DegradedGroup<'a> {
    descriptor: GroupDescriptor,
    members: Vec<Option<Box<dyn ImageSource + Send + Sync + 'a>>>,
    parity: Vec<Option<Box<dyn ImageSource + Send + Sync + 'a>>>,
    /// Cache of the last restored stripe; neighbouring chunks are usually requested next.
    last: Mutex<Option<RestoredStripe>>,
}

impl std::fmt::Debug for DegradedGroup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("members", &self.members.len())
            .field("parity", &self.parity.len())
            .finish()
    }
}

impl<'a> DegradedGroup<'a> {
    /// Creates a group from the remaining files, in the order of the descriptor. Absent trailing entries count as
    /// lost.
    pub fn new(
        descriptor: GroupDescriptor,
        mut members: Vec<Option<Box<dyn ImageSource + Send + Sync + 'a>>>,
        mut parity: Vec<Option<Box<dyn ImageSource + Send + Sync + 'a>>>,
    ) -> Self {
        members.resize_with(descriptor.members.len(), || None);
        parity.resize_with(descriptor.parity.len(), || None);
        let last = Mutex::new(None);
        Self {
            descriptor,
            members,
            parity,
            last,
        }
    }

    /// Returns the descriptor of the group.
    pub fn descriptor(&self) -> &GroupDescriptor {
        &self.descriptor
    }

    /// Returns the position of a shard in the group, if it is a member.
    pub fn place(&self, file: ChunkOrigin) -> Option<usize> {
        self.descriptor.members.iter().position(|member| member.file == file)
    }

    /// Restores bytes of a member from the others, without use of its own file. The range must be within the file.
    pub fn read(&self, member: usize, at: u64, out: &mut [u8]) -> Result<(), ParityError> {
        let is = self
            .descriptor
            .members
            .get(member)
            .ok_or(ParityError::Outside { at, bytes: 0 })?;
        let bytes = is.bytes;
        let stripe_bytes = u64::from(self.descriptor.stripe_bytes);
        let end = at
            .checked_add(out.len() as u64)
            .filter(|end| *end <= bytes)
            .ok_or(ParityError::Outside { at, bytes })?;
        let mut from = at;
        while from < end {
            let nth = from / stripe_bytes;
            let range = self.descriptor.stripe(nth);
            let to = end.min(range.end);
            let piece = self.restored(nth, member)?;
            let part = &piece[(from - range.start) as usize..(to - range.start) as usize];
            out[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
            from = to;
        }
        Ok(())
    }

    /// Restores one piece of a stripe and checks its digest.
    fn restored(&self, nth: u64, member: usize) -> Result<Vec<u8>, ParityError> {
        let mut last = self.last.lock().expect("no holder of a stripe panics");
        if let Some((is, pieces)) = last.as_ref()
            && *is == nth
            && let Some(piece) = &pieces[member]
        {
            return Ok(piece.clone());
        }
        let range = self.descriptor.stripe(nth);
        let stated = |place: usize| digest_at(&self.descriptor.members[place].stripes, nth);
        let mut pieces = Vec::with_capacity(self.members.len());
        for (place, content) in self.members.iter().enumerate() {
            let bytes = self.descriptor.members[place].bytes;
            // A member is zero past its end, which cannot be lost.
            let there = bytes.min(range.end).saturating_sub(range.start);
            pieces.push(if there == 0 {
                Some(vec![0; (range.end - range.start) as usize])
            } else {
                content.as_ref().filter(|_| place != member).and_then(|content| {
                    let mut piece = Vec::new();
                    let there = read_padded(content.as_ref(), bytes, &range, &mut piece).ok()?;
                    (Some(ChunkDigest::of(&piece[..there])) == stated(place)).then_some(piece)
                })
            });
        }
        let parity: Vec<Option<Vec<u8>>> = self
            .parity
            .iter()
            .zip(&self.descriptor.parity)
            .map(|(content, table)| {
                let mut piece = vec![0; (range.end - range.start) as usize];
                content.as_ref()?.read_at(range.start, &mut piece).ok()?;
                (Some(ChunkDigest::of(&piece)) == digest_at(table, nth)).then_some(piece)
            })
            .collect();
        let lost = (0..pieces.len()).filter(|&place| pieces[place].is_none());
        let lost: Vec<ChunkOrigin> = lost.map(|place| self.descriptor.members[place].file).collect();
        let left = parity.iter().flatten().count();
        self.descriptor
            .code()
            .restore(&mut pieces, &parity)
            .map_err(|problem| match problem {
                super::CodeError::TooManyLost { .. } => ParityError::TooManyLost {
                    at: range.start,
                    lost,
                    left,
                },
                other => ParityError::Code(other),
            })?;
        let piece = pieces[member].clone().unwrap_or_default();
        let there = self.descriptor.members[member]
            .bytes
            .min(range.end)
            .saturating_sub(range.start) as usize;
        let found = ChunkDigest::of(piece.get(..there).unwrap_or_default());
        if stated(member).is_some_and(|stated| stated != found) {
            return Err(ParityError::Wrong {
                file: self.descriptor.members[member].file,
                at: range.start,
            });
        }
        *last = Some((nth, pieces));
        Ok(piece)
    }
}
