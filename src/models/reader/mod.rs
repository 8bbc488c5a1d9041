//! The word reader: for every sound token the nearest word of a fixed list.

pub mod words;
