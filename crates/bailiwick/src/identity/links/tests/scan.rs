//! The scan where everybody can make the fixture.
