//! Description of a published data set or a file format, with its reader.

use crate::head::FileHead;
use crate::input::InputFile;
use crate::load::LoadState;
use crate::provenance::Population;

/// Known data set or format.
pub struct SourceFormat {
    /// Name in commands.
    pub name: &'static str,
    /// Title in one line.
    pub title: &'static str,
    /// Licence of the publication.
    pub licence: &'static str,
    /// Publication to cite.
    pub citation: &'static str,
    /// Origin of the files.
    pub home: &'static str,
    /// Description of its clock.
    pub clock: &'static str,
    /// Pitfalls in the interpretation of figures.
    pub traps: &'static [&'static str],
    /// Template of a file that the owner must write, if any.
    pub example: &'static str,
    /// Total number of nodes or devices, if only the publication states it.
    pub(crate) population: Option<Population>,
    /// Returns the role of a file in the source, by content.
    pub(crate) role: fn(&FileHead) -> Option<&'static str>,
    /// Returns true if all files together belong to this source.
    pub(crate) sign: fn(&[&FileHead]) -> bool,
    /// Reads one file with a role.
    pub(crate) read: fn(&'static str, &FileHead, &mut InputFile, &mut LoadState),
    /// Runs after the last file.
    pub(crate) finish: fn(&mut LoadState),
}

impl SourceFormat {
    /// Default values of a source.
    pub(crate) const PLAIN: Self = Self {
        name: "",
        title: "",
        licence: "none stated: use and cite, do not pass on",
        citation: "",
        home: "",
        clock: "",
        traps: &[],
        example: "",
        population: None,
        role: |_| None,
        sign: |_| true,
        read: |_, _, _, _| {},
        finish: |_| {},
    };
}

impl std::fmt::Debug for SourceFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
