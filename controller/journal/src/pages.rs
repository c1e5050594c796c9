//! Reader of redb pages (format 3), each verified by its checksum, while another process may write the file.
//!
//! The file is a header with two commits, of which one byte selects the newer, and trees of pages that are never
//! changed in place: a commit writes new pages and then stores its root. A reference to a page holds its number and its
//! checksum, so a page that was freed and rewritten meanwhile is detected, and no lock is needed. The format is that of
//! the database's `docs/design.md`; allocator and repair are not implemented here.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use twox_hash::XxHash3_128;

/// Magic number of redb files.
pub(crate) const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
const FORMAT: u8 = 3;
const HEADER: usize = 320;
const SLOTS: [usize; 2] = [64, 192];
const SLOT: usize = 128;
const PRIMARY: u8 = 1;
const NOT_CLOSED: u8 = 2;
/// Bits of page and region numbers.
const NUMBER_BITS: u32 = 20;
/// Largest page that is read, bytes; entries are events, which are far smaller.
const MAX_PAGE: u64 = 64 << 20;
/// Deepest tree that is read; each level holds many pages.
const MAX_DEPTH: u32 = 24;

/// Reason why a tree was not read to its end.
#[derive(Debug)]
pub(crate) enum WalkStop<E> {
    /// A page does not match the commit: the writer continued, or the file is damaged.
    Changed,
    /// The file cannot be read.
    Io(io::Error),
    /// The callback ended the walk.
    Taken(E),
}

impl<E> From<io::Error> for WalkStop<E> {
    fn from(problem: io::Error) -> Self {
        match problem.kind() {
            // The file ends before a page that it once held.
            io::ErrorKind::UnexpectedEof => Self::Changed,
            _ => Self::Io(problem),
        }
    }
}

/// Reference to a page, with its checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageLink {
    number: u64,
    sum: u128,
}

/// Newest commit: its number, and the tree of its tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageCommit {
    pub(crate) number: u64,
    pub(crate) tables: Option<PageLink>,
}

/// Width of the keys of a tree, bytes; `None` if it varies.
pub(crate) type KeyWidth = Option<usize>;

/// Callback for a key and its value.
pub(crate) type EntryVisitor<'a, E> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), E>;

/// File of pages.
#[derive(Debug)]
pub(crate) struct PageFile {
    file: File,
    page: u64,
    region: u64,
    lead: u64,
}

impl PageFile {
    /// Opens a file; returns `None` if it is no database of this format.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let mut header = [0; HEADER];
        match file.read_exact_at(&mut header, 0) {
            Err(problem) if problem.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let word = |at| u64::from(u32_at(&header, at).unwrap_or(0));
        let page = word(12);
        let lead = word(16);
        let data = word(20);
        let is_sound = header.starts_with(&MAGIC)
            && (512..=1 << 16).contains(&page)
            && page.is_power_of_two()
            && lead <= 1 << NUMBER_BITS
            && (1..=1 << NUMBER_BITS).contains(&data);
        // Unsound sizes could overflow these products.
        Ok(is_sound.then(|| Self {
            file,
            page,
            region: (lead + data) * page,
            lead: lead * page,
        }))
    }

    /// Returns true if the file was not closed: a writer has it open, or ended without closing it.
    pub(crate) fn not_closed(&self) -> io::Result<bool> {
        let mut state = [0];
        self.file.read_exact_at(&mut state, MAGIC.len() as u64)?;
        Ok(state[0] & NOT_CLOSED != 0)
    }

    /// Returns the newest commit.
    pub(crate) fn commit<E>(&self) -> Result<PageCommit, WalkStop<E>> {
        let mut header = [0; HEADER];
        self.file.read_exact_at(&mut header, 0)?;
        let which = usize::from(header[MAGIC.len()] & PRIMARY);
        let slot = &header[SLOTS[which]..SLOTS[which] + SLOT];
        let sum = u128_at(slot, SLOT - 16).ok_or(WalkStop::Changed)?;
        if slot[0] != FORMAT || XxHash3_128::oneshot(&slot[..SLOT - 16]) != sum {
            return Err(WalkStop::Changed);
        }
        Ok(PageCommit {
            number: u64_at(slot, 104).ok_or(WalkStop::Changed)?,
            tables: if slot[1] == 0 { None } else { link(slot, 8) },
        })
    }

    /// Returns the tree of a table; `None` if the table is absent or empty.
    pub(crate) fn table<E>(&self, tables: Option<PageLink>, name: &str) -> Result<Option<PageLink>, WalkStop<E>> {
        let mut found = None;
        let Some(root) = tables else { return Ok(None) };
        self.walk(root, None, &|_| false, &mut |key, definition| {
            // Layout: kind, length, flag for a root, root.
            if key == name.as_bytes() && definition.get(9).is_some_and(|has| *has != 0) {
                found = link(definition, 10);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits a tree in the order of its keys. `skip` receives an upper bound of the keys below a branch, and returns
    /// true to skip it.
    pub(crate) fn walk<E>(
        &self,
        root: PageLink,
        width: KeyWidth,
        skip: &dyn Fn(&[u8]) -> bool,
        visit: EntryVisitor<'_, E>,
    ) -> Result<(), WalkStop<E>> {
        self.below(root, width, skip, visit, MAX_DEPTH)
    }

    fn below<E>(
        &self,
        link: PageLink,
        width: KeyWidth,
        skip: &dyn Fn(&[u8]) -> bool,
        visit: EntryVisitor<'_, E>,
        depth: u32,
    ) -> Result<(), WalkStop<E>> {
        let page = self.read(link)?;
        let node = PageNode::of(&page, width)
            .filter(|node| XxHash3_128::oneshot(&page[..node.end]) == link.sum)
            .ok_or(WalkStop::Changed)?;
        if !node.is_branch {
            for at in 0..node.count {
                let (key, value) = node.entry(at).ok_or(WalkStop::Changed)?;
                visit(key, value).map_err(WalkStop::Taken)?;
            }
            return Ok(());
        }
        for at in 0..=node.count {
            if at < node.count && skip(node.key(at).ok_or(WalkStop::Changed)?) {
                continue;
            }
            let child = node.child(at).ok_or(WalkStop::Changed)?;
            self.below(
                child,
                width,
                skip,
                visit,
                depth.checked_sub(1).ok_or(WalkStop::Changed)?,
            )?;
        }
        Ok(())
    }

    fn read<E>(&self, link: PageLink) -> Result<Vec<u8>, WalkStop<E>> {
        let order = (link.number >> 59) as u32;
        let mask = (1_u64 << NUMBER_BITS) - 1;
        let index = link.number & (mask >> order.min(NUMBER_BITS));
        let region = (link.number >> NUMBER_BITS) & mask;
        let bytes = self.page << order;
        let from = self.page + region * self.region + self.lead + index * bytes;
        // Memory is allocated only for a page that the file contains.
        if order > NUMBER_BITS || bytes > MAX_PAGE || from + bytes > self.file.metadata()?.len() {
            return Err(WalkStop::Changed);
        }
        let mut page = vec![0; bytes as usize];
        self.file.read_exact_at(&mut page, from)?;
        Ok(page)
    }
}

/// Page as keys with values (leaf), or as keys between children (branch).
struct PageNode<'a> {
    page: &'a [u8],
    width: KeyWidth,
    is_branch: bool,
    count: usize,
    /// End of the bytes that the checksum covers.
    end: usize,
}

impl<'a> PageNode<'a> {
    fn of(page: &'a [u8], width: KeyWidth) -> Option<Self> {
        let is_branch = match page.first()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        let count = usize::from(u16::from_le_bytes(page.get(2..4)?.try_into().ok()?));
        let mut node = Self {
            page,
            width,
            is_branch,
            count,
            end: 0,
        };
        let last = count.checked_sub(1)?;
        node.end = if is_branch {
            node.key_end(last)?
        } else {
            node.value_end(last)?
        };
        (node.end <= page.len()).then_some(node)
    }

    /// Returns the position of the key end table.
    fn head(&self) -> usize {
        if self.is_branch { 8 + 24 * (self.count + 1) } else { 4 }
    }

    fn keys(&self) -> usize {
        let key_ends = if self.width.is_none() { 4 * self.count } else { 0 };
        let value_ends = if self.is_branch { 0 } else { 4 * self.count };
        self.head() + key_ends + value_ends
    }

    fn key_end(&self, at: usize) -> Option<usize> {
        match self.width {
            Some(width) => Some(self.keys() + width * (at + 1)),
            None => offset_at(self.page, self.head() + 4 * at),
        }
    }

    fn value_end(&self, at: usize) -> Option<usize> {
        let key_ends = if self.width.is_none() { 4 * self.count } else { 0 };
        offset_at(self.page, self.head() + key_ends + 4 * at)
    }

    fn key(&self, at: usize) -> Option<&'a [u8]> {
        let from = match at.checked_sub(1) {
            Some(before) => self.key_end(before)?,
            None => self.keys(),
        };
        self.page.get(from..self.key_end(at)?)
    }

    fn entry(&self, at: usize) -> Option<(&'a [u8], &'a [u8])> {
        let from = match at.checked_sub(1) {
            Some(before) => self.value_end(before)?,
            None => self.key_end(self.count - 1)?,
        };
        Some((self.key(at)?, self.page.get(from..self.value_end(at)?)?))
    }

    fn child(&self, at: usize) -> Option<PageLink> {
        Some(PageLink {
            sum: u128_at(self.page, 8 + 16 * at)?,
            number: u64_at(self.page, 8 + 16 * (self.count + 1) + 8 * at)?,
        })
    }
}

fn link(bytes: &[u8], at: usize) -> Option<PageLink> {
    Some(PageLink {
        number: u64_at(bytes, at)?,
        sum: u128_at(bytes, at + 8)?,
    })
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    array_at(bytes, at).map(u128::from_le_bytes)
}

fn offset_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(bytes, at)?).ok()
}
