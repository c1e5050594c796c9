//! Opcodes by number and name: those that make plain values, and those that ask for objects or outside values.
//!
//! The table is that of Python's `pickletools.opcodes`, protocols 0 to 5.

macro_rules! opcodes {
    (understood { $($name:ident = $byte:literal,)* } refused { $($other:ident = $code:literal,)* }) => {
        $(pub(crate) const $name: u8 = $byte;)*

        /// Returns the name of an opcode.
        pub(crate) fn name(byte: u8) -> &'static str {
            match byte {
                $($byte => stringify!($name),)*
                $($code => stringify!($other),)*
                _ => "unknown",
            }
        }

        /// Returns the name of an opcode that asks to import, call or build, or for a value outside of the pickle;
        /// `None` for others.
        pub(crate) fn refused_name(byte: u8) -> Option<&'static str> {
            match byte {
                $($code => Some(stringify!($other)),)*
                _ => None,
            }
        }

        /// All opcodes that [`crate::ObjectPolicy::Refuse`] refuses.
        #[cfg(test)]
        pub(crate) const REFUSED: &[u8] = &[$($code,)*];
    };
}

opcodes! {
    understood {
        STOP = 0x2e,
        PROTO = 0x80,
        FRAME = 0x95,
        MARK = 0x28,
        POP = 0x30,
        POP_MARK = 0x31,
        DUP = 0x32,
        NONE = 0x4e,
        NEWTRUE = 0x88,
        NEWFALSE = 0x89,
        INT = 0x49,
        BININT = 0x4a,
        BININT1 = 0x4b,
        BININT2 = 0x4d,
        LONG = 0x4c,
        LONG1 = 0x8a,
        LONG4 = 0x8b,
        FLOAT = 0x46,
        BINFLOAT = 0x47,
        STRING = 0x53,
        BINSTRING = 0x54,
        SHORT_BINSTRING = 0x55,
        UNICODE = 0x56,
        BINUNICODE = 0x58,
        SHORT_BINUNICODE = 0x8c,
        BINUNICODE8 = 0x8d,
        BINBYTES = 0x42,
        SHORT_BINBYTES = 0x43,
        BINBYTES8 = 0x8e,
        BYTEARRAY8 = 0x96,
        EMPTY_LIST = 0x5d,
        EMPTY_TUPLE = 0x29,
        EMPTY_DICT = 0x7d,
        EMPTY_SET = 0x8f,
        LIST = 0x6c,
        TUPLE = 0x74,
        DICT = 0x64,
        FROZENSET = 0x91,
        TUPLE1 = 0x85,
        TUPLE2 = 0x86,
        TUPLE3 = 0x87,
        APPEND = 0x61,
        SETITEM = 0x73,
        APPENDS = 0x65,
        SETITEMS = 0x75,
        ADDITEMS = 0x90,
        PUT = 0x70,
        BINPUT = 0x71,
        LONG_BINPUT = 0x72,
        MEMOIZE = 0x94,
        GET = 0x67,
        BINGET = 0x68,
        LONG_BINGET = 0x6a,
    }
    refused {
        NEXT_BUFFER = 0x97,
        READONLY_BUFFER = 0x98,
        EXT1 = 0x82,
        EXT2 = 0x83,
        EXT4 = 0x84,
        GLOBAL = 0x63,
        STACK_GLOBAL = 0x93,
        REDUCE = 0x52,
        BUILD = 0x62,
        INST = 0x69,
        OBJ = 0x6f,
        NEWOBJ = 0x81,
        NEWOBJ_EX = 0x92,
        PERSID = 0x50,
        BINPERSID = 0x51,
    }
}

/// Refused opcodes that [`crate::ObjectPolicy::Describe`] records instead.
pub(crate) const GLOBAL: u8 = 0x63;
pub(crate) const STACK_GLOBAL: u8 = 0x93;
pub(crate) const INST: u8 = 0x69;
pub(crate) const OBJ: u8 = 0x6f;
pub(crate) const REDUCE: u8 = 0x52;
pub(crate) const BUILD: u8 = 0x62;
pub(crate) const NEWOBJ: u8 = 0x81;
pub(crate) const NEWOBJ_EX: u8 = 0x92;
pub(crate) const PERSID: u8 = 0x50;
pub(crate) const BINPERSID: u8 = 0x51;
