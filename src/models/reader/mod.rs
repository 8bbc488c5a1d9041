//! The word reader: soft tokens to words of a table, and what a host does with them.

mod host;

pub use host::{HostRuleError, Reading, TOKEN_MS, WordSpan, spans, text};
