//! Plain errors of programs: exceptions that a program raises for its own code, arguments or sizes, in the same way on
//! every machine.

use rankguard_faults::classes;

use crate::Signal;

const PROGRAM_ERRORS: [&str; 16] = [
    classes::ARGPARSE_ERROR,
    classes::ARGUMENT_OR_CONFIG_INVALID,
    classes::ATTRIBUTE_ERROR,
    classes::AUTOGRAD_ERROR,
    classes::CONFIG_ERROR,
    classes::CUDA_OOM,
    classes::DTYPE_MISMATCH,
    classes::IMPORT_ERROR,
    classes::KEY_ERROR,
    classes::PYTHON_INDEX_ERROR,
    classes::PYTHON_NAME_ERROR,
    classes::PYTHON_NONE_DEREFERENCE,
    classes::PYTHON_SYNTAX_ERROR,
    classes::PYTHON_VALUE_ERROR,
    classes::TENSOR_SHAPE_MISMATCH,
    classes::TYPE_ERROR,
];

/// Returns true for the class of a plain error. A Python program that does not handle one ends with an exit code.
pub(crate) fn is_plain_class(class: &str) -> bool {
    PROGRAM_ERRORS.contains(&class)
}

/// Returns true if a sign reports a plain error.
pub(crate) fn is_plain_error(sign: &Signal) -> bool {
    sign.class().is_some_and(|class| is_plain_class(class.as_str()))
}
