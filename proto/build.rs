//! Turns `rankguard/v1/*.proto` and `otlp/*.proto` into Rust with protox, so that nobody needs to install protoc.

use std::error::Error;

const FILES: [&str; 9] = [
    "otlp/common.proto",
    "otlp/logs.proto",
    "otlp/metrics.proto",
    "rankguard/v1/agent.proto",
    "rankguard/v1/evidence.proto",
    "rankguard/v1/job.proto",
    "rankguard/v1/operator.proto",
    "rankguard/v1/order.proto",
    "rankguard/v1/rank.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        // Cargo reads these lines from standard output: it is how a build script speaks.
        #[allow(clippy::print_stdout)]
        {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    let descriptors = protox::compile(FILES, ["."])?;
    tonic_prost_build::configure()
        // Maps are walked when they are encoded and printed: an ordered map keeps the bytes the same from run to run.
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
