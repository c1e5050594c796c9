//! Location of this library.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[repr(C)]
struct SymbolAddress {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    /// Function of the C library: the dynamic loader's information about an address.
    fn dladdr(address: *const c_void, info: *mut SymbolAddress) -> c_int;
}

/// Returns the folder of the loaded copy of this library.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| file().parent().map(Path::to_owned).unwrap_or_default())
}

fn file() -> PathBuf {
    let mut info = MaybeUninit::<SymbolAddress>::uninit();
    let here: fn() -> PathBuf = file;
    // SAFETY: dladdr takes any address and writes the whole answer if it returns non-zero; the name lives as long as
    // the library is loaded.
    unsafe {
        if dladdr(here as *const c_void, info.as_mut_ptr()) == 0 {
            return PathBuf::new();
        }
        let name = CStr::from_ptr(info.assume_init().file);
        PathBuf::from(OsStr::from_bytes(name.to_bytes()))
    }
}
