//! The command `bench` of the program beside it alone: much less to optimise.

#[path = "../bench.rs"]
mod bench;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    bench::main(&arguments);
}
