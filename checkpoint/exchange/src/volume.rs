//! Concatenated byte space over many foreign files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rankguard_checkpoint::ImageSource;

use crate::files::too_short;

/// Maximum number of open files: far below the usual process limit, more than the parts of one tensor usually
/// need.
const OPEN: usize = 64;

/// Layout of a tensor in a file, where its elements are not in row-major order.
#[derive(Debug, Clone)]
pub(crate) struct StridedLayout {
    /// Extent in each dimension.
    pub(crate) shape: Vec<u64>,
    /// Distance of neighbouring elements in each dimension, in elements.
    pub(crate) stride: Vec<u64>,
    /// Size of an element in bytes.
    pub(crate) width: u64,
    /// Number of bytes of the file that the tensor spans.
    pub(crate) span: u64,
}

/// Contiguous range of the volume.
#[derive(Debug)]
pub(crate) struct VolumeSegment {
    /// Offset of the first byte in the volume.
    at: u64,
    bytes: u64,
    file: usize,
    offset: u64,
    strided: Option<Box<StridedLayout>>,
}

/// Byte space over the files of a foreign checkpoint. Presents every part in row-major order.
#[derive(Debug, Default)]
pub(crate) struct FileVolume {
    files: Vec<PathBuf>,
    segments: Vec<VolumeSegment>,
    bytes: u64,
    cache: Mutex<VolumeCache>,
}

#[derive(Debug, Default)]
struct VolumeCache {
    /// Open files, most recently used first.
    open: Vec<(usize, Arc<File>)>,
    /// Last strided segment that was converted to row-major order.
    ordered: Option<(usize, Arc<Vec<u8>>)>,
}

impl FileVolume {
    /// Registers a file and returns its number for [`FileVolume::add`].
    pub(crate) fn file(&mut self, path: PathBuf) -> usize {
        self.files.push(path);
        self.files.len() - 1
    }

    /// Adds `bytes` of a file from `offset` on; returns their offset in the volume, or `None` beyond 64 bits.
    pub(crate) fn add(&mut self, file: usize, offset: u64, bytes: u64, strided: Option<StridedLayout>) -> Option<u64> {
        let at = self.bytes;
        self.bytes = at.checked_add(bytes)?;
        if bytes > 0 {
            self.segments.push(VolumeSegment {
                at,
                bytes,
                file,
                offset,
                strided: strided.map(Box::new),
            });
        }
        Some(at)
    }

    fn open(&self, file: usize) -> io::Result<Arc<File>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = cache.open.iter().position(|(known, _)| *known == file) {
            let found = cache.open.remove(place);
            let handle = Arc::clone(&found.1);
            cache.open.insert(0, found);
            return Ok(handle);
        }
        let path = self.files.get(file).ok_or_else(too_short)?;
        let handle = Arc::new(File::open(path)?);
        cache.open.truncate(OPEN - 1);
        cache.open.insert(0, (file, Arc::clone(&handle)));
        Ok(handle)
    }

    fn read_segment(&self, number: usize, from: u64, out: &mut [u8]) -> io::Result<()> {
        let segment = &self.segments[number];
        let Some(strided) = &segment.strided else {
            return self.open(segment.file)?.read_exact_at(out, segment.offset + from);
        };
        let ordered = self.ordered(number, segment, strided)?;
        let part = usize::try_from(from)
            .ok()
            .and_then(|from| ordered.get(from..)?.get(..out.len()));
        out.copy_from_slice(part.ok_or_else(too_short)?);
        Ok(())
    }

    fn ordered(&self, number: usize, segment: &VolumeSegment, strided: &StridedLayout) -> io::Result<Arc<Vec<u8>>> {
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bytes)) = &lock().ordered
            && *known == number
        {
            return Ok(Arc::clone(bytes));
        }
        let mut raw = vec![0; usize::try_from(strided.span).map_err(|_| too_short())?];
        self.open(segment.file)?.read_exact_at(&mut raw, segment.offset)?;
        let ordered = Arc::new(gather(&raw, strided).ok_or_else(too_short)?);
        lock().ordered = Some((number, Arc::clone(&ordered)));
        Ok(ordered)
    }
}

/// Copies the elements into row-major order; returns `None` if one of them lies outside `raw`.
fn gather(raw: &[u8], strided: &StridedLayout) -> Option<Vec<u8>> {
    let count = strided.shape.iter().product::<u64>();
    let width = usize::try_from(strided.width).ok()?;
    let mut out = Vec::with_capacity(usize::try_from(count).ok()?.checked_mul(width)?);
    let mut index = vec![0u64; strided.shape.len()];
    for _ in 0..count {
        let place: u64 = index.iter().zip(&strided.stride).map(|(at, stride)| at * stride).sum();
        let start = usize::try_from(place).ok()?.checked_mul(width)?;
        out.extend_from_slice(raw.get(start..start.checked_add(width)?)?);
        for dim in (0..index.len()).rev() {
            index[dim] += 1;
            if index[dim] < strided.shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
    Some(out)
}

impl ImageSource for FileVolume {
    fn read_at(&self, mut at: u64, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            let number = self.segments.partition_point(|segment| segment.at <= at);
            let number = number.checked_sub(1).ok_or_else(too_short)?;
            let segment = &self.segments[number];
            let from = at - segment.at;
            let left = segment
                .bytes
                .checked_sub(from)
                .filter(|left| *left > 0)
                .ok_or_else(too_short)?;
            let taken = usize::try_from(left).unwrap_or(usize::MAX).min(out.len());
            let (now, rest) = out.split_at_mut(taken);
            self.read_segment(number, from, now)?;
            at += taken as u64;
            out = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn files_are_read_as_one_and_turned_tensors_in_order() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        File::create(path("a"))
            .and_then(|mut file| file.write_all(b"..abc"))
            .expect("written");
        File::create(path("b"))
            .and_then(|mut file| file.write_all(b"142536"))
            .expect("written");
        let mut volume = FileVolume::default();
        let a = volume.file(path("a"));
        let b = volume.file(path("b"));
        // A 2 x 3 tensor stored column by column.
        let turned = StridedLayout {
            shape: vec![2, 3],
            stride: vec![1, 2],
            width: 1,
            span: 6,
        };
        assert_eq!(volume.add(a, 2, 3, None), Some(0));
        assert_eq!(volume.add(b, 0, 6, Some(turned)), Some(3));
        assert_eq!(volume.add(a, 0, u64::MAX, None), None);
        let mut out = [0; 7];
        volume.read_at(1, &mut out).expect("read");
        assert_eq!(&out, b"bc12345");
        assert!(volume.read_at(8, &mut out[..2]).is_err());
    }
}
