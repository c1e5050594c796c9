//! Frame format: a short JSON header, and a payload that is not parsed.

use rankguard_checkpoint::format::CheckpointId;
use rankguard_model::JobId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{FencingToken, ReplicaName, ReplicaStorage, SumView, TransferRefusal};

const MAGIC: [u8; 4] = *b"RGB1";

/// Maximum header size in bytes. A fetch with more runs of chunks than fit is split into several.
pub(super) const MAX_HEADER_BYTES: u32 = 1 << 20;

/// Header of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RequestHeader {
    /// Payload: the index.
    Offer {
        name: ReplicaName,
        fence: FencingToken,
        keep: ReplicaStorage,
    },
    /// Payload: the chunks of one piece.
    Piece {
        name: ReplicaName,
        fence: FencingToken,
        piece: u32,
    },
    Seal {
        name: ReplicaName,
        fence: FencingToken,
    },
    /// Runs of chunks as (first, count).
    Fetch {
        name: ReplicaName,
        fence: FencingToken,
        runs: Vec<(u32, u32)>,
    },
    /// Request for the complete parities of a checkpoint.
    Sums {
        job: JobId,
        checkpoint: CheckpointId,
        fence: FencingToken,
    },
}

impl RequestHeader {
    pub(super) fn job(&self) -> &JobId {
        match self {
            Self::Offer { name, .. }
            | Self::Piece { name, .. }
            | Self::Seal { name, .. }
            | Self::Fetch { name, .. } => &name.job,
            Self::Sums { job, .. } => job,
        }
    }

    pub(super) fn fence(&self) -> FencingToken {
        match self {
            Self::Offer { fence, .. }
            | Self::Piece { fence, .. }
            | Self::Seal { fence, .. }
            | Self::Fetch { fence, .. }
            | Self::Sums { fence, .. } => *fence,
        }
    }
}

/// Header of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReplyHeader {
    /// Runs of missing pieces as (first, count).
    Wanted {
        missing: Vec<(u32, u32)>,
    },
    Took,
    Kept {
        root: String,
    },
    /// Payload: the chunks.
    Found,
    /// The receiver has no such image.
    Absent,
    Sums {
        sums: Vec<SumView>,
    },
    Refused(TransferRefusal),
}

/// Error of reading a frame.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Protocol(String),
}

/// Sends a header that announces `payload` bytes, which follow.
pub(super) async fn write_head<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    header: &T,
    payload: u64,
) -> Result<(), FrameError> {
    Ok(to.write_all(&head(header, payload)?).await?)
}

/// Serialises a frame up to its payload.
pub(super) fn head<T: Serialize>(header: &T, payload: u64) -> Result<Vec<u8>, FrameError> {
    let header = serde_json::to_vec(header).map_err(|problem| FrameError::Protocol(problem.to_string()))?;
    if header.len() > MAX_HEADER_BYTES as usize {
        return Err(FrameError::Protocol(format!(
            "a header of {} bytes is too long",
            header.len()
        )));
    }
    let mut head = Vec::with_capacity(16 + header.len());
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&(header.len() as u32).to_le_bytes());
    head.extend_from_slice(&payload.to_le_bytes());
    head.extend_from_slice(&header);
    Ok(head)
}

/// Reads a header and the length of the payload that follows; `None` if the other side has closed the
/// connection.
pub(super) async fn read_head<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> Result<Option<(T, u64)>, FrameError> {
    let mut fixed = [0; 16];
    let first = from.read(&mut fixed).await?;
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut fixed[first..]).await?;
    let (magic, rest) = fixed.split_at(4);
    let (length, payload) = rest.split_at(4);
    if magic != MAGIC {
        return Err(FrameError::Protocol("no bulk frame begins like this".to_owned()));
    }
    let length = u32::from_le_bytes(length.try_into().expect("four bytes were split off"));
    let payload = u64::from_le_bytes(payload.try_into().expect("eight bytes are left"));
    if length > MAX_HEADER_BYTES {
        return Err(FrameError::Protocol(format!("a header of {length} bytes is too long")));
    }
    let mut header = vec![0; length as usize];
    from.read_exact(&mut header).await?;
    let header = serde_json::from_slice(&header).map_err(|problem| FrameError::Protocol(problem.to_string()))?;
    Ok(Some((header, payload)))
}

/// Reads a payload of at most `max` bytes into `buffer`, which is reused between calls.
pub(super) async fn read_payload(
    from: &mut (impl AsyncRead + Unpin),
    payload: u64,
    max: usize,
    buffer: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let length = usize::try_from(payload).ok().filter(|length| *length <= max);
    let length =
        length.ok_or_else(|| FrameError::Protocol(format!("a payload of {payload} bytes where {max} may come")))?;
    buffer.resize(length, 0);
    from.read_exact(buffer).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_never_take_much_memory(bytes: Vec<u8>, length: u32, payload: u64) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                let _ = read_head::<RequestHeader>(&mut bytes.as_slice()).await;
                let head = [&MAGIC[..], &length.to_le_bytes(), &payload.to_le_bytes(), &bytes].concat();
                let mut from = head.as_slice();
                if let Ok(Some((_, payload))) = read_head::<RequestHeader>(&mut from).await {
                    let _ = read_payload(&mut from, payload, 1 << 16, &mut Vec::new()).await;
                }
            });
        }
    }
}
