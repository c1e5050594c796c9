//! What is known of one published data set or one file format, and how its files are read.

use crate::head::Head;
use crate::input::Input;
use crate::load::Load;
use crate::provenance::Population;

/// A data set or format that is known here.
pub struct Source {
    /// Its name in commands.
    pub name: &'static str,
    /// One line about it.
    pub title: &'static str,
    /// Under which terms it is published.
    pub licence: &'static str,
    /// Whom to cite.
    pub citation: &'static str,
    /// Where it comes from.
    pub home: &'static str,
    /// How its times are counted.
    pub clock: &'static str,
    /// What to mind when figures are drawn from it.
    pub traps: &'static [&'static str],
    /// A file to begin with, where its owner has to write one.
    pub example: &'static str,
    /// How many there were in all, where the publication states it and no file does.
    pub(crate) population: Option<Population>,
    /// What this file is to the source, by its content.
    pub(crate) role: fn(&Head) -> Option<&'static str>,
    /// Whether all files together are this source.
    pub(crate) sign: fn(&[&Head]) -> bool,
    /// Reads one file of a role.
    pub(crate) read: fn(&'static str, &Head, &mut Input, &mut Load),
    /// What can be said only after the last file.
    pub(crate) finish: fn(&mut Load),
}

impl Source {
    /// What stands where a source says nothing else.
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

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
