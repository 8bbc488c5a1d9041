//! Writes packages with every op and every kind of compressed constant into a directory, to be checked by another tool: `mil_sample DIR`.

#[path = "../tests/support/mil_sample.rs"]
#[expect(clippy::unwrap_used, reason = "test support: a sample graph that cannot be wired is a bug of the sample")]
mod sample;

use eg2_convert::emit::mil::{Description, read::Package, write};
use eg2_convert::tensor::DType;
use eg2_convert::validate::check;
use std::path::PathBuf;

fn main() -> anyhow::Result<()> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or_else(|| anyhow::anyhow!("usage: mil_sample DIR"))?);
    let memory = sample::weights();
    let description = Description { short: "every op".into(), version: "1".into(), ..Description::default() };
    for (name, dtype) in [("fp32", DType::F32), ("fp16", DType::F16)] {
        let graphs = [sample::every_op("short", &memory, dtype), sample::every_op("long", &memory, dtype)];
        let checked: Vec<_> = graphs.iter().flat_map(|g| check(g).ok()).collect();
        for (file, functions) in
            [(format!("{name}.mlpackage"), &checked[..1]), (format!("{name}_2.mlpackage"), &checked)]
        {
            let package = dir.join(file);
            fs_err::create_dir_all(&package)?;
            write(functions, &memory, &description, &package)?;
            let read = Package::open(&package)?;
            anyhow::ensure!(read.violations().is_empty(), "{:?}", read.violations());
            for function in read.functions() {
                read.lift(&function.name)?;
            }
        }
    }
    let package = dir.join("compressed.mlpackage");
    fs_err::create_dir_all(&package)?;
    let graph = sample::compressed("main", &memory);
    let checked: Vec<_> = check(&graph).into_iter().collect();
    write(&checked, &memory, &description, &package)?;
    Ok(())
}
