//! Data files that are compiled into the program.

/// File name and its text.
pub(super) type BuiltinFile = (&'static str, &'static str);

/// Files that are read whenever a catalogue is built.
pub(super) const WORDS: &[BuiltinFile] = &[
    ("actions.toml", include_str!("../../data/actions.toml")),
    ("classes.toml", include_str!("../../data/classes.toml")),
    ("xids.toml", include_str!("../../data/xids.toml")),
    ("sxids.toml", include_str!("../../data/sxids.toml")),
];

/// Categories of the classes in non-primary taxonomies; parsed on first use.
pub(super) const CROSSWALK: BuiltinFile = ("crosswalk.toml", include_str!("../../data/crosswalk.toml"));

/// Ids of the taxonomies in which every class has a category.
pub const PRIMARY: [&str; 5] = [
    "zhang-icse2020",
    "gao-icse-seip2023",
    "jeon-atc2019",
    "hu-nsdi2024",
    "kokolis-hpca2025",
];

macro_rules! taxonomy_files {
    ($($id:literal),* $(,)?) => {
        [$(($id, concat!("taxonomies/", $id, ".toml"), include_str!(concat!("../../data/taxonomies/", $id, ".toml")))),*]
    };
}

/// Id, file name and text of each taxonomy; parsed on first use.
pub(super) const TAXONOMIES: [(&str, &str, &str); 20] = taxonomy_files![
    "zhang-icse2020",
    "gao-icse-seip2023",
    "jeon-atc2019",
    "hu-nsdi2024",
    "kokolis-hpca2025",
    "llama3-2024",
    "ft-hsdp-2026",
    "byterobust-sosp2025",
    "unicron-2024",
    "l4-fse2025",
    "delta-sc2025",
    "infinitehbd-sigcomm2025",
    "fireflyer-sc2024",
    "c4-hpca2025",
    "megascale-nsdi2024",
    "minder-nsdi2025",
    "humbatova-icse2020",
    "openpai-exit-spec",
    "nvrx-restart-agent",
    "nvidia-xid-catalog",
];

macro_rules! signature_files {
    ($($name:literal),* $(,)?) => {
        &[$((concat!("signatures/", $name), include_str!(concat!("../../data/signatures/", $name)))),*]
    };
}

/// Signature files, one for each family.
pub(super) const SIGNATURES: &[BuiltinFile] = signature_files![
    "gpu.toml",
    "dcgm.toml",
    "health-checks.toml",
    "node-conditions.toml",
    "accelerators.toml",
    "nvswitch.toml",
    "fabric-nic.toml",
    "host-kernel.toml",
    "storage.toml",
    "nccl.toml",
    "cuda.toml",
    "torch-launcher.toml",
    "platform.toml",
    "torch.toml",
    "python.toml",
    "network.toml",
    "scheduler.toml",
    "kubernetes.toml",
    "data.toml",
    "numerics.toml",
    "harmless.toml",
];
