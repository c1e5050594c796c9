//! Log service: output of ranks for operators, read from the agent's state directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rankguard_model::Generation;
use rankguard_proto::v1;
use rankguard_proto::v1::rank_logs_server::RankLogs;
use tonic::{Request, Response, Status};

use super::environment::job_folder;

/// Maximum bytes of one response.
const PIECE_MAX: u32 = 1 << 20;
/// Maximum files that one response lists.
const FILES_MAX: usize = 65_536;

/// Log service. It serves operators only, who may start programs on the nodes anyway.
#[derive(Debug, Clone)]
pub(crate) struct RankLogService {
    state_dir: PathBuf,
}

impl RankLogService {
    pub(crate) fn new(state_dir: PathBuf) -> Self {
        Self { state_dir }
    }
}

#[tonic::async_trait]
impl RankLogs for RankLogService {
    async fn list_logs(&self, request: Request<v1::LogsRequest>) -> Result<Response<v1::LogsReply>, Status> {
        let v1::LogsRequest { job, generation } = request.into_inner();
        let folder = job_folder(&self.state_dir, &job);
        let files = blocking(move || list(&folder, generation)).await?;
        Ok(Response::new(v1::LogsReply { files }))
    }

    async fn read_log(&self, request: Request<v1::ReadLogRequest>) -> Result<Response<v1::LogPiece>, Status> {
        let wanted = request.into_inner();
        let folder = job_folder(&self.state_dir, &wanted.job);
        let path = folder
            .join(format!("g{}", wanted.generation))
            .join(file_name(wanted.rank, wanted.is_error));
        let piece = blocking(move || read(&path, wanted.offset, wanted.bytes_max.min(PIECE_MAX))).await?;
        Ok(Response::new(piece))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| Status::internal("the reading of a log was cut off"))?;
    done.map_err(|problem| match problem.kind() {
        io::ErrorKind::NotFound => Status::not_found("this node keeps no such log"),
        _ => Status::internal(format!("cannot read the log: {problem}")),
    })
}

fn file_name(rank: u32, is_error: bool) -> String {
    format!("rank-{rank}.{}", if is_error { "err" } else { "out" })
}

/// Parses rank and stream from a file name.
fn parse_name(name: &str) -> Option<(u32, bool)> {
    let (rank, stream) = name.strip_prefix("rank-")?.split_once('.')?;
    let is_error = match stream {
        "out" => false,
        "err" => true,
        _ => return None,
    };
    Some((rank.parse().ok()?, is_error))
}

/// Lists the logs of a generation, or of the newest one if it is 0. The list is empty if this node ran no rank of the
/// job.
fn list(folder: &Path, generation: u64) -> io::Result<Vec<v1::LogFile>> {
    let generation = match generation {
        0 => newest_generation(folder)?,
        given => Some(Generation(given)),
    };
    let Some(generation) = generation else {
        return Ok(Vec::new());
    };
    let of_generation = folder.join(format!("g{generation}"));
    let entries = match fs::read_dir(&of_generation) {
        Ok(entries) => entries,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(problem) => return Err(problem),
    };
    let mut files = Vec::new();
    for entry in entries.take(FILES_MAX) {
        let entry = entry?;
        let name = entry.file_name();
        let Some((rank, is_error)) = name.to_str().and_then(parse_name) else {
            continue;
        };
        let meta = entry.metadata()?;
        if meta.is_file() {
            files.push(v1::LogFile {
                generation: generation.0,
                rank,
                is_error,
                bytes: meta.len(),
                path: entry.path().display().to_string(),
            });
        }
    }
    files.sort_by_key(|file| (file.rank, file.is_error));
    Ok(files)
}

fn newest_generation(folder: &Path) -> io::Result<Option<Generation>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(problem) => return Err(problem),
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix('g')?.parse().ok());
    Ok(numbers.max().map(Generation))
}

/// Reads part of a file. A link is not followed, because a rank of the agent's own user could create one.
fn read(path: &Path, offset: u64, bytes_max: u32) -> io::Result<v1::LogPiece> {
    let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let left = meta.len().saturating_sub(offset).min(u64::from(bytes_max));
    let mut data = vec![0; usize::try_from(left).unwrap_or(0)];
    let count = fill(&file, &mut data, offset)?;
    data.truncate(count);
    Ok(v1::LogPiece {
        data,
        bytes: meta.len(),
    })
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(problem) if problem.kind() == io::ErrorKind::Interrupted => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for generation in [2, 10] {
            let of = dir.path().join(format!("g{generation}"));
            fs::create_dir(&of).expect("made");
            fs::write(of.join("rank-0.out"), format!("generation {generation}\n")).expect("written");
            fs::write(of.join("rank-0.err"), "").expect("written");
            fs::write(of.join("rank-x.out"), "").expect("written");
        }
        dir
    }

    #[test]
    fn the_newest_generation_is_listed_where_none_is_named() {
        let dir = folder();
        let newest = list(dir.path(), 0).expect("read");
        let kinds: Vec<_> = newest
            .iter()
            .map(|file| (file.generation, file.rank, file.is_error))
            .collect();
        assert_eq!(kinds, [(10, 0, false), (10, 0, true)]);
        assert_eq!(list(dir.path(), 2).expect("read").len(), 2);
        assert!(list(dir.path(), 3).expect("read").is_empty());
        assert!(list(&dir.path().join("none"), 0).expect("read").is_empty());
    }

    #[test]
    fn pieces_are_bounded_and_links_are_not_followed() {
        let dir = folder();
        let path = dir.path().join("g2").join("rank-0.out");
        let piece = read(&path, 0, 5).expect("read");
        assert_eq!((piece.data.as_slice(), piece.bytes), (&b"gener"[..], 13));
        assert_eq!(read(&path, 11, 100).expect("read").data, b"2\n");
        assert!(read(&path, 99, 100).expect("read").data.is_empty());
        let link = dir.path().join("g2").join("rank-1.out");
        std::os::unix::fs::symlink(&path, &link).expect("linked");
        assert!(read(&link, 0, 5).is_err());
        assert_eq!(list(dir.path(), 2).expect("read").len(), 2, "a link is no log");
    }
}
