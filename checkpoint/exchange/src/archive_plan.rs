//! Plans the `torch.load` archives of an export and writes them in one pass over the tensors of a
//! checkpoint.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::ExchangeError;
use crate::archive_writer::ArchiveWriter;
use crate::files;
use crate::pickle_writer::StorageSource;

/// Content of one archive: a pickle and the storages that it references.
#[derive(Debug)]
pub(crate) struct ArchivePlan {
    pub(crate) pickle: Vec<u8>,
    pub(crate) storages: Vec<StorageSource>,
}

impl ArchivePlan {
    /// Returns the size of the records in bytes, without zip headers.
    fn bytes(&self) -> u64 {
        let storage = |source: &StorageSource| match source {
            StorageSource::Inline(bytes) => bytes.len() as u64,
            StorageSource::Streamed { bytes, .. } => *bytes,
        };
        self.storages
            .iter()
            .map(storage)
            .fold(self.pickle.len() as u64, u64::saturating_add)
    }
}

/// Position of a written archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArchivePlace {
    /// Index into the list of export files.
    pub(crate) file: usize,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

enum WriteStep {
    Begin { file: usize, pickle: Vec<u8> },
    Inline { name: String, bytes: Vec<u8> },
    Streamed { name: String, number: usize, bytes: u64 },
    End,
}

/// Sequential writer of several archives; tensors of the checkpoint arrive in ascending order of
/// their numbers.
pub(crate) struct ArchiveSequence<'f> {
    steps: VecDeque<WriteStep>,
    files: &'f [(PathBuf, File)],
    /// End offset of each file in bytes, where its next archive starts.
    ends: Vec<u64>,
    open: Option<(ArchiveWriter<'f>, usize)>,
    current: Option<usize>,
    places: Vec<ArchivePlace>,
}

/// Assigns each archive to a file; starts a new file where the current one would grow beyond `most`
/// bytes.
pub(crate) fn file_numbers(plans: &[ArchivePlan], most: u64) -> Vec<usize> {
    let mut file = 0;
    let mut filled = 0u64;
    let number = |plan: &ArchivePlan| {
        if filled > 0 && filled.saturating_add(plan.bytes()) > most {
            (file, filled) = (file + 1, 0);
        }
        filled = filled.saturating_add(plan.bytes());
        file
    };
    plans.iter().map(number).collect()
}

/// Creates the files of an export; fails if one exists.
pub(crate) fn create(paths: Vec<PathBuf>) -> Result<Vec<(PathBuf, File)>, ExchangeError> {
    let created = |path: PathBuf| Ok((path.clone(), files::new_file(&path)?));
    paths.into_iter().map(created).collect()
}

impl<'f> ArchiveSequence<'f> {
    /// Builds the write steps; archive `nth` of `plans` goes to the file `numbers[nth]`.
    pub(crate) fn new(plans: Vec<ArchivePlan>, numbers: &[usize], files: &'f [(PathBuf, File)]) -> Self {
        let mut steps = VecDeque::new();
        for (plan, file) in plans.into_iter().zip(numbers) {
            steps.push_back(WriteStep::Begin {
                file: *file,
                pickle: plan.pickle,
            });
            for (nth, source) in plan.storages.into_iter().enumerate() {
                let name = format!("data/{nth}");
                steps.push_back(match source {
                    StorageSource::Inline(bytes) => WriteStep::Inline { name, bytes },
                    StorageSource::Streamed { number, bytes } => WriteStep::Streamed { name, number, bytes },
                });
            }
            steps.push_back(WriteStep::End);
        }
        Self {
            steps,
            files,
            ends: vec![0; files.len()],
            open: None,
            current: None,
            places: Vec::new(),
        }
    }

    /// Writes the next bytes of tensor `number`, and first every step that precedes them in the
    /// sequence.
    pub(crate) fn write(&mut self, number: usize, bytes: &[u8]) -> Result<(), ExchangeError> {
        while self.current != Some(number) && self.next_step()? {}
        let path = self.path();
        match &mut self.open {
            Some((writer, _)) => writer.write(bytes).map_err(ExchangeError::io("write", &path)),
            None => Err(ExchangeError::Unfit {
                what: format!("tensor {number} has no place in the export"),
            }),
        }
    }

    /// Writes the remaining steps and flushes all files; returns the position of each archive.
    pub(crate) fn finish(mut self) -> Result<Vec<ArchivePlace>, ExchangeError> {
        while self.next_step()? {}
        for (path, file) in self.files {
            file.sync_all().map_err(ExchangeError::io("write", path))?;
        }
        Ok(self.places)
    }

    fn next_step(&mut self) -> Result<bool, ExchangeError> {
        let Some(step) = self.steps.pop_front() else {
            return Ok(false);
        };
        if let WriteStep::Begin { file, .. } = &step {
            self.open = Some((ArchiveWriter::new(&self.files[*file].1, self.ends[*file]), *file));
        }
        let path = self.path();
        self.apply(step).map_err(ExchangeError::io("write", &path))?;
        Ok(true)
    }

    fn apply(&mut self, step: WriteStep) -> io::Result<()> {
        self.current = None;
        let Some((writer, _)) = &mut self.open else {
            return Err(io::Error::other("no archive is open"));
        };
        match step {
            WriteStep::Begin { pickle, .. } => {
                writer.record("data.pkl", &pickle)?;
                writer.record("byteorder", b"little")
            }
            WriteStep::Inline { name, bytes } => writer.record(&name, &bytes),
            WriteStep::Streamed { name, number, bytes } => {
                self.current = Some(number);
                writer.begin(&name, bytes)
            }
            WriteStep::End => {
                writer.record("version", b"3\n")?;
                self.end()
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let Some((writer, file)) = self.open.take() else {
            return Ok(());
        };
        let bytes = writer.finish()?;
        let offset = self.ends[file];
        self.ends[file] += bytes;
        self.places.push(ArchivePlace { file, offset, bytes });
        Ok(())
    }

    fn path(&self) -> PathBuf {
        let file = self.open.as_ref().map_or(0, |(_, file)| *file);
        self.files.get(file).map_or(Path::new(""), |(path, _)| path).to_owned()
    }
}
