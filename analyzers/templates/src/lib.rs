//! Lines that no signature knows in, stable templates and what is new since a healthy run out.
