//! Compiles `rankguard/v1/*.proto`, `otlp/*.proto` and `torchft/*.proto` to Rust with protox, so that no protoc is needed.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;

const FILES: [&str; 12] = [
    "otlp/common.proto",
    "otlp/logs.proto",
    "otlp/metrics.proto",
    "rankguard/v1/agent.proto",
    "rankguard/v1/enrolment.proto",
    "rankguard/v1/evidence.proto",
    "rankguard/v1/job.proto",
    "rankguard/v1/operator.proto",
    "rankguard/v1/order.proto",
    "rankguard/v1/rank.proto",
    "rankguard/v1/rendezvous.proto",
    "torchft/lighthouse.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        // Cargo reads build script directives from standard output.
        #[allow(clippy::print_stdout)]
        {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    let mut descriptors = protox::compile(FILES, ["."])?;
    tonic_prost_build::configure()
        // Maps are iterated when they are encoded and printed: an ordered map gives the same bytes in every run.
        .btree_map(".")
        .compile_fds(descriptors.clone())?;
    // Reflection needs the types; the comments are in the files.
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(folder.join("descriptors.bin"), descriptors.encode_to_vec())?;
    Ok(())
}
