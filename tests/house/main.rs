//! The house checks itself: arrows between crates go down, pure crates stay pure, every crate is on the map, ids of
//! failure classes are constants, modules of the large crates import lower layers only.

#![allow(clippy::print_stderr, reason = "a test that cannot run says so loudly")]

mod classes;
mod crates;
mod layers;
mod purity;
mod repository;
mod sources;

use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand};

/// Returns the root folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the command line lies in the workspace")
        .to_owned()
}

/// Returns cargo's description of the workspace, without foreign crates.
fn metadata() -> Metadata {
    let mut command = MetadataCommand::new();
    command
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()]);
    command.exec().expect("cargo describes its workspace")
}
