#!/usr/bin/env python3
"""Makes docs/images from runs of build/release, with headless Chromium (Debian: chromium).

Trains the example classifier in a fresh folder, then takes pictures of its terminal, of `monitor`, of report.html and
of TensorBoard (PyPI: tensorboard, installed by this script into build/docs-venv). Look at the pictures before a commit.
"""
import html
import os
import pathlib
import pty
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / 'docs/images'
PORT = 16006
RUN = 'onnxtrain --model ex/cnn.onnx --data ex/digits --eval-split 0.2 --epochs 5 --lr 2e-3 --out runs/digits'
PAGE = '''<meta charset="utf-8"><style>body {{ background: #17181c; color: #e8e8ea; margin: 18px }}
pre {{ font: 14px/1.25 "DejaVu Sans Mono", monospace; margin: 0 }} b {{ color: #8ab4f8 }}</style>
<pre><b>$ {command}</b>\n{text}</pre>'''


def run_in_terminal(command, folder, columns, rows):
    """What the command shows at its end in a terminal of this size: escape sequences are gone."""
    parent, child = pty.openpty()
    environment = dict(os.environ, PATH=f'{ROOT}/build/release/bin:{os.environ["PATH"]}', TERM='xterm')
    process = subprocess.Popen(['bash', '-c', f'stty cols {columns} rows {rows}; {command}'], cwd=folder, stdin=child,
                               stdout=child, stderr=child, env=environment)
    os.close(child)
    output = b''
    while True:
        try:
            part = os.read(parent, 1 << 16)
        except OSError:
            break
        if not part:
            break
        output += part
    process.wait()
    text = output.decode().split('\x1b[2J')[-1].replace('\r\n', '\n')
    lines = [line.split('\r\x1b[K')[-1] for line in text.split('\n')]  # a progress line as it was last
    return re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', '\n'.join(lines))


def take(url, name, width, height, *options):
    subprocess.run(['chromium', '--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars',
                    f'--window-size={width},{height}', f'--screenshot={IMAGES / name}', *options, url],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print('written:', IMAGES / name)


def take_terminal(command, text, name, folder, width, height):
    page = folder / (name + '.html')
    page.write_text(PAGE.format(command=html.escape(command), text=html.escape(text)))
    take(f'file://{page}', name, width, height)


def take_tensorboard(folder):
    environment = ROOT / 'build/docs-venv'
    if not (environment / 'bin/tensorboard').exists():
        subprocess.run(['python3', '-m', 'venv', environment], check=True)
        subprocess.run([environment / 'bin/pip', '-q', 'install', 'tensorboard', 'setuptools<80'], check=True)
    server = subprocess.Popen([environment / 'bin/tensorboard', '--logdir', folder / 'runs', '--port',
                               str(PORT)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(10)
        take(f'http://localhost:{PORT}/#scalars&tagFilter=loss%7Caccuracy&_smoothingWeight=0', 'tensorboard.png', 1100,
             700, '--virtual-time-budget=120000')
    finally:
        server.terminate()


def main():
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='onnxtrain-pictures-') as name:
        folder = pathlib.Path(name)
        (folder / 'tools').symlink_to(ROOT / 'tools')
        subprocess.run(['/usr/bin/python3', 'tools/make_examples.py', 'ex'], cwd=folder, check=True)
        text = run_in_terminal(RUN, folder, 118, 40)
        take_terminal(RUN, text, 'terminal.png', folder, 1240, 600)
        text = run_in_terminal('onnxtrain monitor runs/digits', folder, 72, 28)
        take_terminal('onnxtrain monitor runs/digits', text, 'monitor.png', folder, 760, 540)
        report = f'file://{folder}/runs/digits/report.html'
        take(report, 'report.png', 1100, 980)
        take(report, 'report-dark.png', 1100, 980, '--blink-settings=preferredColorScheme=0')
        take_tensorboard(folder)


if __name__ == '__main__':
    main()
