//! Web console under `/console/`: constant files, embedded in the program. The page reads the API with the access of its
//! browser and has no other.

use axum::body::Body;
use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION};
use hyper::{HeaderMap, Response, StatusCode};

use crate::answer;

/// Folder of the files in URLs.
const FOLDER: &str = "/console/";
/// Paths that lead to the console.
pub(crate) const ENTRY_PATHS: [&str; 2] = ["/", "/console"];
/// Only files of this listener run, no text is read as HTML by a script, and no other page embeds the console.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// File of the console.
#[derive(Debug)]
pub(crate) struct ConsoleFile {
    /// Name within [`FOLDER`]; empty for the page itself.
    name: &'static str,
    media: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! file {
    ($name:literal, $media:expr) => {
        ConsoleFile {
            name: $name,
            media: $media,
            content: include_str!(concat!("../console/", $name)),
        }
    };
}

/// Files of the console.
pub(crate) static FILES: &[ConsoleFile] = &[
    ConsoleFile {
        name: "",
        media: HTML,
        content: include_str!("../console/index.html"),
    },
    file!("api.js", SCRIPT),
    file!("case.js", SCRIPT),
    file!("cases.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("console.css", CSS),
    file!("dom.js", SCRIPT),
    file!("failures.js", SCRIPT),
    file!("fleet-map.js", SCRIPT),
    file!("fleet.js", SCRIPT),
    file!("icon.svg", "image/svg+xml"),
    file!("job.js", SCRIPT),
    file!("live.js", SCRIPT),
    file!("main.js", SCRIPT),
    file!("node.js", SCRIPT),
];

impl ConsoleFile {
    /// Returns the path of the file in URLs.
    pub(crate) fn path(&self) -> String {
        format!("{FOLDER}{}", self.name)
    }

    /// Returns the file, or 304 if the client has it.
    pub(crate) fn respond(&self, request: &HeaderMap) -> Response<Body> {
        let content = Bytes::from_static(self.content.as_bytes());
        let mut response = answer::tagged(content, self.media, request);
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        response
    }
}

/// Leads to the console.
pub(crate) fn redirect() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::from_static(FOLDER));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
