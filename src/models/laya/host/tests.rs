//! Against what the published host code made of the requests in the fixture.

pub const FIXTURE: &str = "tests/fixtures/laya";
