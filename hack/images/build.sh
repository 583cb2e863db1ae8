#!/bin/sh
# Makes container images without a container engine, as docker-archive tars, and prints the path of the tar.
#
#   hack/images/build.sh 24.11       slurmtide/slurm:24.11, from Debian trixie
#   hack/images/build.sh 26.05       slurmtide/slurm:26.05, from Debian forky
#   hack/images/build.sh mariadb     slurmtide/mariadb:test, a database for tests of accounting, from Debian trixie
#   hack/images/build.sh ldap        slurmtide/ldap:test, a directory for tests of sssd, from Debian trixie
#   hack/images/build.sh docker      slurmtide/docker:test, a Docker daemon for tests of jobs that use one, from Debian trixie
#   hack/images/build.sh slurmtide   slurmtide/slurmtide:dev, our own programs, built static
#   hack/images/build.sh previous    slurmtide/slurmtide:previous, our programs as they were, for tests of upgrades; hack/images/previous says when
#   hack/images/build.sh faults      slurmtide/slurmtide:faults, the same with a bridge that tests can kill at any step
#
# Images of Debian packages are kept in ${SLURMTIDE_CACHE:-~/.cache/slurmtide}/images under a key made of everything that shapes them;
# delete the file to get newer packages. With Docker: docker build -f hack/images/Dockerfile --build-arg SLURM_VERSION=26.05 hack/images
#
# SLURMTIDE_DEBIAN_MIRROR  Debian mirror; default: the one this machine's apt uses
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

say() { echo "images: $*" >&2; }
die() { say "$*"; exit 1; }

command -v go >/dev/null || die "the Go toolchain is missing: install Go (the version is in go.mod) and put it on PATH"

arch() {
	if command -v dpkg >/dev/null; then dpkg --print-architecture; else go env GOARCH; fi
}

archive() { (cd "$root" && go run ./hack/images/archive "$@"); }

# pack_slurmtide TAR TAG BIN BRIDGE
pack_slurmtide() {
	out=$1 tag=$2 bin=$3 bridge=$4
	archive -o "$out" -tag "slurmtide/slurmtide:$tag" -arch "$(go env GOARCH)" -user 65532:65532 -entrypoint /usr/local/bin/slurmtide \
		-add "$bin/slurmtide=/usr/local/bin/slurmtide" -add "$bridge=/usr/local/bin/slurmtide-bridge" \
		-add "$bin/slurmtide-scaler=/usr/local/bin/slurmtide-scaler" -add "$bin/slurmtide-controller=/usr/local/bin/slurmtide-controller" \
		-add "$bin/slurmtide-exporter=/usr/local/bin/slurmtide-exporter" \
		-add "$bin/reconfigure=/usr/local/bin/reconfigure" -add "$bin/resume=/usr/local/bin/resume" \
		-add "$bin/suspend=/usr/local/bin/suspend" -add "$bin/resume-fail=/usr/local/bin/resume-fail" \
		-add "$bin/start-gate=/usr/local/bin/start-gate"
	echo "$out"
}

build_slurmtide() {
	tag=$1 bridge=$root/bin/slurmtide-bridge
	# go build leaves up-to-date binaries alone, so this costs a second when nothing has changed.
	say "slurmtide:$tag: building static programs into bin/"
	mkdir -p "$root/out/images"
	make -s -C "$root" build >&2
	if [ "$tag" = faults ]; then
		bridge=$root/out/faults/slurmtide-bridge # never in bin/, from where programs are released
		(cd "$root" && CGO_ENABLED=0 go build -tags faults -trimpath -ldflags "-s -w -X main.version=faults" -o "$bridge" ./cmd/slurmtide-bridge)
	fi
	pack_slurmtide "$root/out/images/slurmtide-$tag.tar" "$tag" "$root/bin" "$bridge"
}

build_previous() {
	commit=$(cat "$here/previous")
	git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null ||
		die "this clone has no commit $commit, named by hack/images/previous: fetch the whole history (git fetch --unshallow)"
	cache=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/images
	out=$cache/slurmtide-previous-$commit.tar
	if [ -e "$out" ]; then
		say "slurmtide:previous is cached"
		echo "$out"
		return
	fi
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/build.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	say "slurmtide:previous: building static programs of $commit"
	git -C "$root" archive "$commit" | tar -x -C "$work"
	make -s -C "$work" build VERSION="$(git -C "$root" describe --tags --always "$commit")" >&2
	(pack_slurmtide "$work/image.tar" previous "$work/bin" "$work/bin/slurmtide-bridge") >&2 # in a shell of its own: it has an out of its own
	mv "$work/image.tar" "$out"
	echo "$out"
}

# The mirror apt already uses here is reachable; apt resolves both of its source formats for us.
mirror() {
	if [ -n "${SLURMTIDE_DEBIAN_MIRROR:-}" ]; then
		echo "$SLURMTIDE_DEBIAN_MIRROR"
		return
	fi
	# shellcheck disable=SC2016 # $(…) is apt's own template
	uri=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		sed -n 's/^Debian|Debian|//p' | head -n 1)
	[ -n "$uri" ] || die "apt here has no Debian mirror: name one in SLURMTIDE_DEBIAN_MIRROR"
	echo "$uri"
}

install_tools() {
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	if command -v mmdebstrap >/dev/null && [ -e "$keyring" ]; then return; fi
	command -v apt-get >/dev/null || die "mmdebstrap is missing and there is no apt-get to install it; use hack/images/Dockerfile instead"
	[ "$(id -u)" = 0 ] || die "mmdebstrap is missing: run 'apt-get install mmdebstrap debian-archive-keyring' as root"
	say "installing mmdebstrap"
	install='apt-get -q -o DPkg::Lock::Timeout=600 install -y --no-install-recommends mmdebstrap debian-archive-keyring'
	# A fresh machine may never have read its package lists.
	DEBIAN_FRONTEND=noninteractive sh -c "$install >/dev/null 2>&1 || { apt-get -q update && $install; }" >&2 ||
		die "cannot install mmdebstrap, see above"
}

# build_debian IMAGE TAG SUITE FINISH PACKAGES...: an image of lists of packages; FINISH is a script that runs in it as the last step.
build_debian() {
	image=$1 tag=$2 suite=$3 finish=$here/$4 arch=$(arch)
	shift 4
	packages=$(cd "$here" && cat "$@")
	cache=${SLURMTIDE_CACHE:-$HOME/.cache/slurmtide}/images
	key=$({ echo "$suite $arch $packages"; cat "$here/build.sh" "$finish" "$here/archive/archive.go" "$here/slurmstepd/main.go"; } | sha256sum | cut -c1-16)
	out=$cache/$image-$tag-$key.tar
	mkdir -p "$cache"

	# Two builds at once would do the work twice: the second waits and finds the result.
	exec 9>"$cache/$image-$tag.lock"
	if command -v flock >/dev/null; then flock 9; fi
	if [ -e "$out" ]; then
		say "$image:$tag is cached"
		echo "$out"
		return
	fi

	install_tools
	from=$(mirror)
	work=$(mktemp -d "$cache/build.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	say "$image:$tag: installing Debian $suite packages from $from (half a minute on two idle cores)"
	# Check-Valid-Until: testing's package lists expire, and a snapshot or a frozen mirror is still good.
	# path-exclude: files nobody reads in a container are not even unpacked.
	# cleanup/run: finish.sh put directories there. output/dev: the runtime makes /dev, and an import without root cannot make devices.
	set -- --variant=minbase --format=tar --skip=cleanup/run,output/dev --arch="$arch" --keyring="$keyring" --include="$(echo "$packages" | paste -sd,)" \
		--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--customize-hook="chroot \"\$1\" sh -s < '$finish'"
	entrypoint=
	if [ "$image" = slurm ]; then
		entrypoint='-entrypoint /usr/bin/tini -entrypoint -s -entrypoint --' # slurmd collects no processes but its own children
		(cd "$root" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$work/slurmstepd" ./hack/images/slurmstepd)
		set -- --customize-hook="cp '$work/slurmstepd' \"\$1\"/tmp/" "$@" # for finish.sh
	fi
	if [ "$(id -u)" = 0 ]; then set -- --mode=root "$@"; fi
	# Every step of mmdebstrap is one "I:" line: show those, keep the rest for the case of failure.
	# The lock is closed for children (9>&-), or a daemon started by a package script could hold it.
	mkfifo "$work/log.pipe"
	tee "$work/log" <"$work/log.pipe" | sed -n "s/^I: /images:   /p" >&2 9>&- &
	mmdebstrap "$@" "$suite" "$work/root.tar" "deb $from $suite main" >"$work/log.pipe" 2>&1 9>&- || {
		wait
		tail -n 30 "$work/log" >&2
		die "mmdebstrap failed, its last lines are above"
	}
	wait
	say "$image:$tag: writing the archive"
	# shellcheck disable=SC2086 # words
	archive -o "$work/image.tar" $entrypoint -tag "slurmtide/$image:$tag" -arch "$arch" -layer "$work/root.tar" \
		-env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	mv "$work/image.tar" "$out"
	say "$image:$tag: $(du -m "$out" | cut -f1) MB"
	echo "$out"
}

case "${1:-}" in
24.11) build_debian slurm 24.11 trixie finish.sh packages packages-sssd ;;
26.05) build_debian slurm 26.05 forky finish.sh packages ;; # forky has no sssd
mariadb) build_debian mariadb test trixie finish-mariadb.sh packages-mariadb ;;
ldap) build_debian ldap test trixie finish-ldap.sh packages-ldap ;;
docker) build_debian docker test trixie finish-docker.sh packages-docker ;;
slurmtide) build_slurmtide dev ;;
previous) build_previous ;;
faults) build_slurmtide faults ;;
*) die "usage: build.sh 24.11|26.05|mariadb|ldap|docker|slurmtide|previous|faults" ;;
esac
