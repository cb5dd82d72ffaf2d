//! The worker's side of a session, as the SDK sees it: its image, the socket to it, starting it, and what
//! it found out about this host.

mod cause;
mod enforcement;
mod group;
mod image;
mod link;
mod ruleset;
mod start;
mod temporary;

pub use enforcement::{Enforcement, Kept, Standing};
pub use group::{GroupCause, SessionLimitInForce, SessionLimitStanding};

pub(crate) use cause::{Mechanism, Settings, cause_of, landlock_shortfall};
pub(crate) use group::SessionGroup;
pub(crate) use image::Image;
#[cfg(feature = "_test-image")]
#[doc(hidden)]
pub use image::TestImage;
pub(crate) use link::{Link, Message};
pub(crate) use ruleset::{grant as grant_ruleset, scope as scope_ruleset};
pub(crate) use start::{Keeper, start};
pub(crate) use temporary::TemporaryDir;
