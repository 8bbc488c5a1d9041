//! `--precision` of the models whose weights take no int8.

use crate::passes::Precision;

/// The choices.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum PrecisionArg {
    Fp16,
    Fp32,
    #[value(name = "fp16w32")]
    Fp16W32,
}

impl From<PrecisionArg> for Precision {
    fn from(arg: PrecisionArg) -> Precision {
        match arg {
            PrecisionArg::Fp16 => Precision::Fp16,
            PrecisionArg::Fp32 => Precision::Fp32,
            PrecisionArg::Fp16W32 => Precision::Fp16W32,
        }
    }
}
